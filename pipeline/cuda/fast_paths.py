"""The optional fast paths of a GPU: which chips have them, and which ones this process uses. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from voxgate.codecs.neural.cuda.tiles import ChipLimits


class FastPath(StrEnum):
    """A part that a GPU can do without, by its name in the log."""

    LAYERS = "own layers"
    ATTENTION = "CUDA attention"
    PRODUCTS = "streamed products"
    INPUTS = "fast input preparation"
    CODE_DRAW = "CUDA code draw"
    RESIDUAL_UNITS = "fused residual units of the codec"
    HALF_CODEC = "half-precision codec"
    EARLY_LAUNCH = "early launch of kernels"
    PERSISTENT_PREDICTOR = "persistent predictor"
    PERSISTENT_PREDICTOR_32 = "persistent predictor of 17 to 32 rows"

    def missing(self, chip: ChipLimits) -> str | None:
        """What the chip lacks for this path; None when it can have it."""
        own = ".".join(map(str, chip.capability))
        if self in _HOPPER_ONLY and not chip.is_hopper:
            return f"it runs on compute capability 9.x only, this GPU has {own}"
        if self in _HOPPER_ON and not chip.has_early_launch:
            return f"it needs compute capability 9.0, this GPU has {own}"
        return None


_HOPPER_ONLY = frozenset(
    (FastPath.PRODUCTS, FastPath.RESIDUAL_UNITS, FastPath.PERSISTENT_PREDICTOR, FastPath.PERSISTENT_PREDICTOR_32)
)
_HOPPER_ON = frozenset((FastPath.ATTENTION, FastPath.CODE_DRAW, FastPath.EARLY_LAUNCH))

_outcomes: dict[str, str] = {}


def record(name: str, reason: str | None) -> None:
    """Remember that the path called `name` is in use, or for which `reason` it is not."""
    _outcomes[name] = reason or ""


def outcomes() -> Mapping[str, str]:
    """The paths that this process has tried: the reason why one is not in use, empty where it is."""
    return dict(_outcomes)


def in_use(path: FastPath) -> bool:
    """Whether this process uses `path`."""
    return _outcomes.get(path) == ""


def summary(paths: Mapping[str, str]) -> str:
    """One line of `outcomes`, for the log."""
    used = [name for name, reason in paths.items() if not reason]
    unused = [f"{name} ({reason})" for name, reason in paths.items() if reason]
    line = f"GPU fast paths in use: {', '.join(used) or 'none'}"
    return f"{line}; not in use: {', '.join(unused)}" if unused else line
