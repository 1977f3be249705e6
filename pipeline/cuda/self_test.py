"""Optional fast paths: each is built and compared with its reference at the start, and left out where that fails."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from ..errors import EngineError
from .fast_paths import record

log = logging.getLogger(__name__)

T = TypeVar("T")


def accelerated(
    name: str,
    build: Callable[[], T],
    self_test: Callable[[T], bool] | None = None,
    *,
    unavailable: str | None = None,
) -> T | None:
    """The result of `build` if it passes `self_test`, else None; then logs one line, "<name> disabled: <reason>".

    `unavailable`: why this GPU or model cannot have it; then nothing is built. Build and self-test fail by EngineError,
    OSError (a missing driver or compiler library) or torch.OutOfMemoryError; other exceptions propagate.
    """
    if unavailable is not None:
        disabled(name, unavailable, expected=True)
        return None
    try:
        built = build()
        if self_test is None or self_test(built):
            record(name, None)
            return built
        reason = "self-test differs from the reference"
    except torch.OutOfMemoryError:
        reason = "out of GPU memory"
    except (EngineError, OSError) as error:
        reason = str(error)
    disabled(name, reason)
    return None


def disabled(name: str, reason: str, *, expected: bool = False) -> None:
    """Record and log that a fast path is not in use; `expected`: because the GPU, the model or an option is so."""
    record(name, reason)
    log.log(logging.INFO if expected else logging.WARNING, "%s disabled: %s", name, reason)


def is_close(own: Tensor, expected: Tensor, tolerance: float) -> bool:
    """Whether the relative difference of two tensors is below `tolerance`; False where either has NaN."""
    return bool((own.float() - expected.float()).norm() < tolerance * expected.float().norm())


class RandomInputs:
    """Random tensors for self-tests, on the CPU and the same at every start.

    Device and dtype are explicit, because a model that is being loaded may have changed PyTorch's defaults.
    """

    def __init__(self, seed: int = 0) -> None:
        self._generator = torch.Generator("cpu").manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        """float32, from the standard normal distribution."""
        return torch.randn(shape, generator=self._generator, device="cpu", dtype=torch.float32)

    def uniform(self, *shape: int) -> Tensor:
        """float32 in [0, 1)."""
        return torch.rand(shape, generator=self._generator, device="cpu", dtype=torch.float32)

    def integers(self, end: int, *shape: int) -> Tensor:
        """int64 in [0, end)."""
        return torch.randint(end, shape, generator=self._generator, device="cpu", dtype=torch.int64)
