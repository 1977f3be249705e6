"""Drawing codes on a GPU with `csrc/draw_codes.cu`, several times as fast as the same in Triton (`gpu_sampling`)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...cuda.nvrtc import CudaKernel, Launch, supported, words
from ...errors import EngineError
from ..reference.sampling import Candidates

log = logging.getLogger(__name__)

SOURCE = Path(__file__).parent.joinpath("csrc/draw_codes.cu")
WARPS = 8
SHARED_BYTES = 8192
"""What a block needs is less."""
TRIED = 16
OPTIONS = ((0.9, 50, 1.0), (0.9, 50, 0.8), (1.0, 0, 1.0), (0.8, 0, 0.7))
"""Temperature, top-k and top-p of the rows that are tried."""


def code_draw_for(vocab: int, hidden: int, dtype: torch.dtype) -> CodeDraw | None:
    """For these sizes on the current GPU; None where the kernel cannot be had, and Triton has to draw."""
    if not supported() or dtype is not torch.bfloat16 or vocab % (32 * WARPS) or hidden % 2:
        return None
    try:
        draw = CodeDraw(vocab, hidden)
        if self_test(draw, vocab, hidden, torch.device("cuda")):
            return draw
        reason: object = "its draws are not those of sorting"
    except (EngineError, OSError) as error:
        reason = error
    log.warning("codes are drawn by Triton, more slowly: %s", reason)
    return None


def self_test(draw: CodeDraw, vocab: int, hidden: int, device: torch.device) -> bool:
    """Whether `draw` gives the ids that sorting gives, and their entries, for some rows with all kinds of options."""
    # A model may be loading: there are other defaults of device and dtype then.
    generator = torch.Generator("cpu").manual_seed(0)
    cpu: Any = {"device": "cpu", "dtype": torch.float32}
    logits = 2 * torch.randn(TRIED, vocab, generator=generator, **cpu)
    inputs = torch.randn(vocab, hidden, generator=generator, **cpu).bfloat16()
    temperature, top_k, top_p = torch.tensor(OPTIONS, **cpu).repeat(TRIED // len(OPTIONS), 1).unbind(1)
    candidates = Candidates.of(temperature, top_k.long(), top_p, vocab)
    noise = candidates.noise(torch.rand(TRIED, 1, generator=generator, **cpu))
    expected = candidates.draw(logits, noise)
    limit = torch.where(top_k > 0, top_k.long(), vocab)[:, None]
    given = Candidates(
        candidates.inverse_temperature.to(device), candidates.greedy, limit.to(device),
        top_p[:, None].contiguous().to(device), vocab,
    )  # fmt: skip  # one argument list
    codes = torch.full((TRIED, 1), -1, dtype=torch.int64, device=device)
    x = torch.zeros(TRIED, hidden, dtype=torch.bfloat16, device=device)
    residual = torch.zeros(TRIED, hidden, dtype=torch.float32, device=device)
    sum_sq = torch.zeros(TRIED, 1, dtype=torch.float32, device=device)
    draw(logits.to(device), given, noise.to(device), 0, codes, inputs.to(device), x, residual, sum_sq)
    return torch.equal(codes[:, 0].cpu(), expected) and torch.equal(x.cpu(), inputs[expected])


class CodeDraw:
    """Draws one group's codes of a batch, and begins the next pass with their entries, bfloat16."""

    def __init__(self, vocab: int, hidden: int, launch: Launch | None = None, warps: int = WARPS) -> None:
        """`launch`: instead of compiling the kernel for this GPU. Raises EngineError where that fails."""
        self._threads = 32 * warps
        macros = {"VOCAB": vocab, "HIDDEN": hidden, "WARPS": warps}
        self._launch = launch or CudaKernel(SOURCE, macros, SHARED_BYTES, early=True).launch

    def __call__(
        self, logits: Tensor, candidates: Candidates, noise: Tensor, group: int, codes: Tensor, inputs: Tensor | None,
        x: Tensor, residual: Tensor, sum_sq: Tensor,
    ) -> None:  # fmt: skip  # one argument list
        """Fill `codes[:, group]`, int64 [n, groups]; with `inputs`, [vocab, hidden], also `x`, `residual` and `sum_sq`.

        `logits`: float32 [>= n, vocab]; `noise`: [n, groups]; `x`, `residual`: [>= n, hidden]; `sum_sq`: [>= n, parts], of
        each row of `residual`, to be summed.
        """
        argument = words(
            logits, candidates.inverse_temperature, candidates.limit, candidates.top_p, noise, codes, inputs, x, residual,
            sum_sq, group, codes.shape[1], sum_sq.shape[1],
        )  # fmt: skip  # one argument list
        self._launch(len(codes), self._threads, argument)
