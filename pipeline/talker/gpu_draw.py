"""Drawing codes on a GPU with `draw_codes.cu`, several times as fast as the same in Triton (`gpu_sampling`)."""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from torch import Tensor

from ..errors import EngineError
from .gpu_compile import CudaKernel, Launch, supported, words
from .sampling import Candidates

log = logging.getLogger(__name__)

SOURCE = Path(__file__).with_name("draw_codes.cu")
WARPS = 8
SHARED_BYTES = 8192
"""What a block needs is less."""


def code_draw_for(vocab: int, hidden: int, dtype: torch.dtype) -> CodeDraw | None:
    """For these sizes on the current GPU; None where the kernel cannot be had, and Triton has to draw."""
    if not supported() or dtype is not torch.bfloat16 or vocab % (32 * WARPS) or hidden % 2:
        return None
    try:
        return CodeDraw(vocab, hidden)
    except (EngineError, OSError) as error:
        log.warning("codes are drawn by Triton, more slowly: %s", error)
        return None


class CodeDraw:
    """Draws one group's codes of a batch, and begins the next pass with their entries, bfloat16."""

    def __init__(self, vocab: int, hidden: int, launch: Launch | None = None, warps: int = WARPS) -> None:
        """`launch`: instead of compiling the kernel for this GPU. Raises EngineError where that fails."""
        self._threads = 32 * warps
        macros = {"VOCAB": vocab, "HIDDEN": hidden, "WARPS": warps}
        self._launch = launch or CudaKernel(SOURCE, macros, SHARED_BYTES, early=True).launch

    def __call__(
        self, logits: Tensor, candidates: Candidates, noise: Tensor, group: int, codes: Tensor, inputs: Tensor | None,
        x: Tensor, kept: Tensor, squares: Tensor,
    ) -> None:  # fmt: skip  # one argument list
        """Fill `codes[:, group]`, int64 [n, groups]; with `inputs`, [vocab, hidden], also `x`, `kept` and `squares`.

        `logits`: float32 [>= n, vocab]; `noise`: [n, groups]; `x`, `kept`: [>= n, hidden]; `squares`: [>= n, parts], of
        each row of `kept`, to be summed.
        """
        argument = words(
            logits, candidates.inverse_temperature, candidates.limit, candidates.top_p, noise, codes, inputs, x, kept,
            squares, group, codes.shape[1], squares.shape[1],
        )  # fmt: skip  # one argument list
        self._launch(len(codes), self._threads, argument)
