"""`CodeDraw` against drawing by sorting; on a GPU, else compiled for the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from voxgate.pipeline.cuda.nvrtc import Launch, PackedArguments
from voxgate.pipeline.talker.cuda.sampling import SHARED_BYTES, SOURCE, TEST_ROWS, CodeDraw, self_test
from voxgate.pipeline.talker.reference.sampling import Candidates

from .cuda_on_cpu import cpu_launch

ROWS, VOCAB, HIDDEN, GROUPS, WARPS = 12, 256, 40, 3, 2


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(0.9, 50, 1.0), (0.9, 50, 0.7), (1.0, 0, 1.0), (1.0, 0, 0.7), (1.0, 100, 0.8), (0.0, 50, 1.0), (0.0, 0, 0.5)],
)
@pytest.mark.parametrize("ties", [False, True], ids=["distinct", "ties"])
def test_draws_equal_those_of_sorted_candidates(
    device: torch.device, tmp_path: Path, temperature: float, top_k: int, top_p: float, ties: bool
) -> None:
    generator = torch.Generator().manual_seed(top_k)
    logits = torch.randn(ROWS, VOCAB, generator=generator) * 2
    all_top_k = torch.full((ROWS, 1), top_k or VOCAB)
    if ties:
        if top_p < 1:
            pytest.skip("a tie at the top-p threshold counts as one candidate in the kernel")
        # Every logit twice: the kernel takes whole pairs, which count as one candidate.
        logits = torch.cat([logits[:, : VOCAB // 2], logits[:, : VOCAB // 2]], 1)
    noise = torch.rand(ROWS, GROUPS, generator=generator)
    candidates = Candidates.of(
        torch.full((ROWS,), temperature), torch.full((ROWS,), top_k), torch.full((ROWS,), top_p), VOCAB
    )
    noise = candidates.noise(noise)
    expected = candidates.draw(logits.clone(), noise[:, 1:2])
    inputs = torch.randn(VOCAB, HIDDEN, generator=generator).bfloat16()
    macros = {"VOCAB": VOCAB, "HIDDEN": HIDDEN, "WARPS": WARPS, "BLOCKS": ROWS, "SHARED": SHARED_BYTES}
    launch = None if device.type == "cuda" else cpu_launch(SOURCE, macros, tmp_path)
    draw = CodeDraw(VOCAB, HIDDEN, launch, WARPS)
    on_device = Candidates(
        candidates.inverse_temperature.to(device), candidates.greedy.to(device), all_top_k.to(device),
        torch.full((ROWS, 1), top_p, device=device), VOCAB,
    )  # fmt: skip  # one argument list
    codes = torch.full((ROWS, GROUPS), -1, device=device)
    x = torch.full((ROWS, HIDDEN), torch.nan, dtype=torch.bfloat16, device=device)
    residual, sum_sq = (
        torch.full_like(x, torch.nan, dtype=torch.float32),
        torch.full((ROWS, 5), torch.nan, device=device),
    )
    draw(logits.to(device), on_device, noise.to(device), 1, codes, inputs.to(device), x, residual, sum_sq)
    drawn = codes[:, 1].cpu()
    assert codes[:, 0].tolist() == codes[:, 2].tolist() == [-1] * ROWS
    if ties:
        assert torch.equal(logits.gather(1, drawn[:, None]), logits.gather(1, expected[:, None]))
        assert drawn.max() < VOCAB // 2
    else:
        assert drawn.tolist() == expected.tolist()
    entries = inputs[drawn]
    assert torch.equal(x.cpu(), entries)
    assert torch.equal(residual.cpu(), entries.float())
    assert torch.allclose(sum_sq.sum(1).cpu(), entries.float().square().sum(1))


def self_test_launch(device: torch.device, folder: Path) -> Launch | None:
    """The kernel for the self-test's batch; None compiles it for the GPU."""
    macros = {"VOCAB": VOCAB, "HIDDEN": HIDDEN, "WARPS": WARPS, "BLOCKS": TEST_ROWS, "SHARED": SHARED_BYTES}
    return None if device.type == "cuda" else cpu_launch(SOURCE, macros, folder)


def test_self_test_accepts_the_kernel(device: torch.device, tmp_path: Path) -> None:
    assert self_test(CodeDraw(VOCAB, HIDDEN, self_test_launch(device, tmp_path), WARPS), VOCAB, HIDDEN, device)


def broken(_blocks: int, _threads: int, _params: PackedArguments) -> None:
    """Writes no codes."""


def test_self_test_rejects_a_kernel_with_wrong_codes(device: torch.device) -> None:
    assert not self_test(CodeDraw(VOCAB, HIDDEN, broken, WARPS), VOCAB, HIDDEN, device)
