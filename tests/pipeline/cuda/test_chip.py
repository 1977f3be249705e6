"""The limits of a GPU: what each generation has, limits forced for development, GPUs that are refused."""

from __future__ import annotations

import pytest
from voxgate.codecs.neural.cuda.tiles import ChipLimits
from voxgate.pipeline.cuda.capability import check_capability, check_fp8_cache
from voxgate.pipeline.cuda.chip import lowered
from voxgate.pipeline.cuda.fast_paths import FastPath, summary
from voxgate.pipeline.errors import EngineError

AMPERE, ADA, HOPPER = ChipLimits((8, 0), 166_912), ChipLimits((8, 9), 101_376), ChipLimits((9, 0), 232_448)
BLACKWELL, RTX_5090 = ChipLimits((10, 0), 232_448), ChipLimits((12, 0), 101_376)


@pytest.mark.parametrize(
    ("path", "chips"),
    [
        (FastPath.LAYERS, [AMPERE, ADA, HOPPER, BLACKWELL, RTX_5090]),
        (FastPath.EARLY_LAUNCH, [HOPPER, BLACKWELL, RTX_5090]),
        (FastPath.CODE_DRAW, [HOPPER, BLACKWELL, RTX_5090]),
        (FastPath.PRODUCTS, [HOPPER]),
        (FastPath.RESIDUAL_UNITS, [HOPPER]),
        (FastPath.PERSISTENT_PREDICTOR, [HOPPER]),
        (FastPath.PERSISTENT_PREDICTOR_32, [HOPPER]),
    ],
)
def test_each_fast_path_runs_on_its_generations(path: FastPath, chips: list[ChipLimits]) -> None:
    assert [chip for chip in (AMPERE, ADA, HOPPER, BLACKWELL, RTX_5090) if path.missing(chip) is None] == chips


def test_missing_path_names_both_capabilities() -> None:
    assert FastPath.CODE_DRAW.missing(ADA) == "it needs compute capability 9.0, this GPU has 8.9"
    assert FastPath.RESIDUAL_UNITS.missing(BLACKWELL) == "it runs on compute capability 9.x only, this GPU has 10.0"


def test_forced_limits_lower_what_the_gpu_has_and_never_raise_it() -> None:
    assert lowered(HOPPER, None) == HOPPER
    assert lowered(HOPPER, "8.9:101376") == ADA
    assert lowered(ADA, "9.0:232448") == ADA


@pytest.mark.parametrize("limits", ["8.9", "ada:99", "8.9:99KB", ":"])
def test_forced_limits_in_another_form_are_refused(limits: str) -> None:
    with pytest.raises(EngineError, match="VOXGATE_GPU_LIMITS must be like"):
        lowered(HOPPER, limits)


def test_gpu_before_ampere_is_refused_in_one_sentence() -> None:
    check_capability((8, 0), "A100")
    with pytest.raises(EngineError, match=r"Tesla T4 has CUDA compute capability 7\.5, but the talker needs 8\.0 or"):
        check_capability((7, 5), "Tesla T4")


def test_summary_names_paths_in_use_and_why_others_are_not() -> None:
    assert summary({"own layers": "", "CUDA code draw": "no compiler"}) == (
        "GPU fast paths in use: own layers; not in use: CUDA code draw (no compiler)"
    )


@pytest.mark.parametrize("capability", [(8, 9), (10, 0), (12, 0)])
def test_cache_in_float8_is_for_hopper(capability: tuple[int, int]) -> None:
    check_fp8_cache((9, 0), "H200")
    with pytest.raises(EngineError, match=rf"has CUDA compute capability {capability[0]}\.{capability[1]}, but --kv-c"):
        check_fp8_cache(capability, "GPU")
