from __future__ import annotations

import pytest
from voxgate.benchmarks.gpu.engine import SHOWN, shares_of


def test_overlapping_kernels_count_once_as_busy() -> None:
    shares = shares_of([(0, 4, "ours"), (2, 6, "ours"), (8, 10, "draw")])
    assert shares == {"busy": 0.8, "ours": 0.8, "draw": 0.2, "others": 0.0}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("nvjet_sm90_tst_128x16_64x11_4x1_v_bz_TNT", "matrix library"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int>(float)", "matrix library"),
        ("void at::native::vectorized_gather_kernel<16, long>(char*)", "vectorized_gather_kernel"),
        ("few_rows", "few_rows"),
        ("Memcpy DtoH (Device -> Pinned)", "Memcpy DtoH "),
    ],
)
def test_kernel_names_are_shortened(name: str, shown: str) -> None:
    assert list(shares_of([(0, 1, name)])) == ["busy", shown, "others"]


def test_short_kernels_are_summed() -> None:
    shares = shares_of([(number, number + 1, f"kernel{number}") for number in range(2 * SHOWN)])
    assert len(shares) == SHOWN + 2
    assert shares["others"] == 0.5


def test_shares_of_no_kernels_are_empty() -> None:
    assert shares_of([]) == {}
