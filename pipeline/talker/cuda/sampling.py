"""Sampling on a GPU: `TritonSampler` for single draws, and `CodeDraw`, the predictor's draw in CUDA C++.

`csrc/draw_codes.cu` is several times as fast as the same draw in Triton (`sampling_kernels.py`).
"""

from __future__ import annotations

from pathlib import Path

import torch
import triton
from torch import Tensor
from voxgate.codecs.neural.cuda.tiles import ChipLimits

from ...cuda.fast_paths import FastPath
from ...cuda.nvrtc import CudaKernel, KernelSource, Launch, pack_arguments
from ...cuda.self_test import RandomInputs, accelerated
from ..reference.sampling import Candidates
from .sampling_kernels import WARPS as TRITON_WARPS
from .sampling_kernels import draw_rows, uniform_rows

SOURCE = Path(__file__).parent / "csrc/draw_codes.cu"
WARPS = 8
"""Warps of a block, which draws one row."""
SHARED_BYTES = 8192
"""Shared memory of a block; the kernel uses less."""
TEST_ROWS = 16
TEST_OPTIONS = ((0.9, 50, 1.0), (0.9, 50, 0.8), (1.0, 0, 1.0), (0.8, 0, 0.7))
"""Temperature, top-k and top-p of the rows of the self-test, in turn."""


class TritonSampler:
    """`Sampler` on a GPU. Nothing waits for the device."""

    def uniform(self, seed: Tensor, frame: Tensor, groups: int) -> Tensor:
        noise = torch.empty(len(seed), groups, dtype=torch.float32, device=seed.device)
        uniform_rows[(len(seed),)](
            seed.contiguous(), frame.contiguous(), noise, groups, GROUPS=triton.next_power_of_2(groups), num_warps=1
        )
        return noise

    def candidates(self, temperature: Tensor, top_k: Tensor, top_p: Tensor, vocab: int) -> Candidates:
        return Candidates.on_device(temperature, top_k, top_p, vocab)

    def draw(self, logits: Tensor, candidates: Candidates, noise: Tensor) -> Tensor:
        """As `Candidates.draw`, with `top_k` and `top_p` given for every row."""
        assert candidates.top_k is not None
        assert candidates.top_p is not None
        rows, width = logits.shape
        ids = torch.empty(rows, dtype=torch.int64, device=logits.device)
        draw_rows[(rows,)](
            logits.contiguous(), ids, candidates.inverse_temperature, candidates.top_k, candidates.top_p, noise,
            noise.stride(0), width, SPAN=triton.next_power_of_2(width), num_warps=TRITON_WARPS,
        )  # fmt: skip  # one argument list
        return ids


class CodeDraw:
    """Draws the codes of one group for a batch, and starts the next pass with their embeddings, in bfloat16."""

    def __init__(self, vocab: int, hidden: int, launch: Launch | None = None, warps: int = WARPS) -> None:
        """`launch`: used instead of compiling the kernel for this GPU. Raises EngineError where that fails."""
        self._threads = 32 * warps
        self._launch = launch or CudaKernel(code_draw_source(vocab, hidden, warps), SHARED_BYTES, pdl=True).launch

    def __call__(
        self, logits: Tensor, candidates: Candidates, noise: Tensor, group: int, codes: Tensor, inputs: Tensor | None,
        x: Tensor, residual: Tensor, sum_sq: Tensor,
    ) -> None:  # fmt: skip  # one argument list
        """Fill `codes[:, group]`, int64 [n, groups]; with `inputs`, [vocab, hidden], also `x`, `residual` and `sum_sq`.

        `logits`: float32 [>= n, vocab]; `noise`: float32 [n, groups]; `x` (bfloat16), `residual` (float32): [>= n,
        hidden]; `sum_sq`: float32 [>= n, parts], whose sum over parts is that of the squares of a row of `residual`.
        """
        params = pack_arguments(
            logits, candidates.inverse_temperature, candidates.top_k, candidates.top_p, noise, codes, inputs, x,
            residual, sum_sq, group, codes.shape[1], sum_sq.shape[1],
        )  # fmt: skip  # one argument list
        self._launch(len(codes), self._threads, params)


def code_draw_source(vocab: int, hidden: int, warps: int = WARPS) -> KernelSource:
    """The kernel of `CodeDraw` for these sizes."""
    return KernelSource(SOURCE, {"VOCAB": vocab, "HIDDEN": hidden, "WARPS": warps})


def code_draw_supports(vocab: int, hidden: int, dtype: torch.dtype) -> bool:
    """Whether `CodeDraw` computes these sizes in this precision."""
    return dtype is torch.bfloat16 and vocab % (32 * WARPS) == hidden % 2 == 0


def code_draw_for(vocab: int, hidden: int, dtype: torch.dtype, chip: ChipLimits) -> CodeDraw | None:
    """`CodeDraw` for these sizes on the current GPU; None where it does not support them or fails its self-test."""
    supported = code_draw_supports(vocab, hidden, dtype)
    reason = FastPath.CODE_DRAW.missing(chip) or (None if supported else "the model has another size or precision")
    return accelerated(
        FastPath.CODE_DRAW,
        lambda: CodeDraw(vocab, hidden),
        lambda draw: self_test(draw, vocab, hidden, torch.device("cuda")),
        unavailable=reason,
    )


def self_test(draw: CodeDraw, vocab: int, hidden: int, device: torch.device) -> bool:
    """Whether `draw` gives the ids that sorting gives, and their embeddings, for rows with all kinds of options."""
    inputs = RandomInputs()
    logits = 2 * inputs.normal(TEST_ROWS, vocab)
    embeddings = inputs.normal(vocab, hidden).bfloat16()
    options = torch.tensor(TEST_OPTIONS, device="cpu", dtype=torch.float32)
    temperature, top_k, top_p = options.repeat(TEST_ROWS // len(TEST_OPTIONS), 1).unbind(1)
    candidates = Candidates.on_device(temperature, top_k.long(), top_p, vocab)
    noise = candidates.noise(inputs.uniform(TEST_ROWS, 1))
    expected = candidates.draw(logits.clone(), noise)
    assert candidates.top_k is not None
    assert candidates.top_p is not None
    on_device = Candidates(
        candidates.inverse_temperature.to(device), candidates.greedy, candidates.top_k.to(device),
        candidates.top_p.to(device), vocab,
    )  # fmt: skip  # one argument list
    codes = torch.full((TEST_ROWS, 1), -1, dtype=torch.int64, device=device)
    x = torch.zeros(TEST_ROWS, hidden, dtype=torch.bfloat16, device=device)
    residual = torch.zeros(TEST_ROWS, hidden, dtype=torch.float32, device=device)
    sum_sq = torch.zeros(TEST_ROWS, 1, dtype=torch.float32, device=device)
    draw(logits.to(device), on_device, noise.to(device), 0, codes, embeddings.to(device), x, residual, sum_sq)
    return torch.equal(codes[:, 0].cpu(), expected) and torch.equal(x.cpu(), embeddings[expected])
