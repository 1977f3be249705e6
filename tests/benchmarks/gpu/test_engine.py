"""Kernels that ran, as shares of the time."""

from __future__ import annotations

import pytest
from voxgate.benchmarks.gpu.engine import SHOWN, shares_of


def test_overlapping_kernels_keep_the_device_busy_once() -> None:
    shares = shares_of([(0, 4, "ours"), (2, 6, "ours"), (8, 10, "draw")])
    assert shares == {"busy": 0.8, "ours": 0.8, "draw": 0.2, "others": 0.0}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("nvjet_sm90_tst_128x16_64x11_4x1_v_bz_TNT", "the library's products"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int>(float)", "the library's products"),
        ("void at::native::vectorized_gather_kernel<16, long>(char*)", "vectorized_gather_kernel"),
        ("few_rows", "few_rows"),
        ("Memcpy DtoH (Device -> Pinned)", "Memcpy DtoH "),
    ],
)
def test_names_are_short(name: str, shown: str) -> None:
    assert list(shares_of([(0, 1, name)])) == ["busy", shown, "others"]


def test_what_takes_little_is_one_figure() -> None:
    shares = shares_of([(number, number + 1, f"kernel{number}") for number in range(2 * SHOWN)])
    assert len(shares) == SHOWN + 2
    assert shares["others"] == 0.5


def test_nothing_ran() -> None:
    assert shares_of([]) == {}
