"""`PersistentPredictor` against the reference; on a GPU, else compiled for the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

import pytest
import torch
from torch import Tensor
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint, TransformerSize
from voxgate.pipeline.talker.cuda.predictor.persistent import (
    SOURCE,
    TILE_ROWS,
    VARIANTS,
    PackedPredictor,
    PersistentPredictor,
    PredictorShape,
    Reference,
    predictor_shape_for,
    self_test,
)
from voxgate.pipeline.talker.reference.predictor import CodePredictor
from voxgate.pipeline.talker.reference.predictor_weights import FoldedPredictor
from voxgate.pipeline.talker.reference.sampling import Candidates

from ..pipeline.talker.small_model import small_checkpoint, small_weights
from .cuda_on_cpu import cpu_launch

SIZE = TransformerSize(256, 512, 1, 4, 2, 128, 1e-6, 10_000.0)
VOCAB, GROUPS = 512, 3
ROUNDING = 0.06
"""Largest error of a logit by bfloat16 between the products: typically 0.0035, at most 0.03 in 50,000 logits."""
EDGE = 1e-5
"""Share of the total mass: nearer to the edge of a candidate, float32 sums do not decide."""


@dataclass
class ForcedCandidates:
    """In place of `Candidates`: records the logits and returns codes drawn before."""

    codes: Tensor
    logits: list[Tensor] = field(default_factory=list)

    def draw(self, logits: Tensor, _noise: Tensor) -> Tensor:
        self.logits.append(logits.clone())
        return self.codes[:, len(self.logits) - 1]


def sorted_draw(
    logits: Tensor, noise: Tensor, top_k: int, top_p: float, inv_temperature: float
) -> tuple[Tensor, Tensor]:
    """The ids drawn, int64 [n], and the mass by which each draw and its top-p threshold miss another candidate."""
    best, ids = torch.sort(logits.double(), dim=1, descending=True)
    cumulative = torch.softmax(best[:, : top_k or None] * inv_temperature, 1).cumsum(1)
    last = cumulative.shape[1] - 1
    end = cumulative.gather(1, (cumulative < top_p).sum(1, keepdim=True).clamp(max=last))
    at = noise[:, None] * end
    edges = torch.cat([cumulative - at, cumulative - top_p], 1) if top_p < 1 else cumulative - at
    return ids.gather(1, (cumulative <= at).sum(1, keepdim=True).clamp(max=last))[:, 0], edges.abs().amin(1)


def variant(rows: int) -> int:
    """The variant that serves so many rows."""
    return next(most for most in VARIANTS if rows <= most)


@dataclass(frozen=True)
class FrameInputs:
    """A predictor's inputs, on the CPU."""

    hidden: Tensor
    first: Tensor
    noise: Tensor
    top_k: int = 0
    top_p: float = 1.0
    inv_temperature: float = 1 / 0.8

    @classmethod
    def of(cls, rows: int, top_k: int, top_p: float) -> FrameInputs:
        generator = torch.Generator().manual_seed(rows)
        noise = torch.rand(rows, GROUPS - 1, generator=generator)
        noise[0] = 0.0
        return cls(
            torch.randn(rows, SIZE.hidden, generator=generator).bfloat16(),
            torch.randint(VOCAB, (rows,), generator=generator), noise, top_k, top_p,
        )  # fmt: skip  # one argument list

    def run(self, predictor: PersistentPredictor, groups: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Codes, and the logits of the last group."""
        rows = len(self.hidden)
        options = Candidates(
            torch.full((rows, 1), self.inv_temperature, device=device),
            torch.zeros(rows, dtype=torch.bool, device=device),
            torch.full((rows, 1), self.top_k or VOCAB, device=device),
            torch.full((rows, 1), self.top_p, device=device), VOCAB,
        )  # fmt: skip  # one argument list
        noise = self.noise[:, : groups - 1].contiguous().to(device)
        drawn = predictor(self.hidden.to(device), self.first.to(device), options, noise)
        return drawn.cpu(), predictor.last_logits(rows).cpu()


@pytest.fixture(scope="module")
def weights(checkpoint: TalkerCheckpoint) -> dict[str, Tensor]:
    small = replace(small_checkpoint(checkpoint, hidden=SIZE.hidden, groups=GROUPS), predictor=SIZE, codebook=VOCAB)
    return {name: tensor.bfloat16() for name, tensor in small_weights(replace(small, codec_vocab=VOCAB + 32)).items()}


def shape_of(rows: int, groups: int = GROUPS) -> PredictorShape:
    """The shape of the variant for `rows` rows."""
    shape = predictor_shape_for(SIZE, groups, VOCAB, torch.bfloat16, variant(rows))
    assert shape is not None
    return shape


MakePredictor = Callable[[int, int, int], PersistentPredictor]
RunFrame = Callable[[int, int], tuple[Tensor, Tensor]]


@pytest.fixture(scope="module")
def make(weights: dict[str, Tensor], device: torch.device, tmp_path_factory: pytest.TempPathFactory) -> MakePredictor:
    """Makes a predictor for a number of rows and of groups; on a CPU, with this order of its threads."""
    if device.type == "cuda" and torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("the kernel needs Hopper")
    own = {name: tensor.to(device) for name, tensor in weights.items()}

    @cache
    def of(most: int, groups: int, order: int) -> PersistentPredictor:
        shape = shape_of(most, groups)
        folded = FoldedPredictor.of(own, own["talker.model.codec_embedding.weight"], SIZE, groups)
        folder = tmp_path_factory.mktemp("kernel")
        launch = None if device.type == "cuda" else cpu_launch(SOURCE, shape.macros(), folder, order)
        return PersistentPredictor(shape, PackedPredictor(shape, folded), SIZE.norm_eps, launch)

    return lambda rows, groups, order: of(variant(rows), groups, order)


CASES = {1: (0, 1.0), 12: (20, 0.6), 16: (0, 0.7), 17: (0, 1.0), 24: (20, 0.6), 32: (0, 0.7)}
"""Top-k and top-p by rows."""


@pytest.fixture(scope="module")
def run_frame(make: MakePredictor, device: torch.device) -> RunFrame:
    """Codes and last logits of the case of a number of rows, for a number of groups; computed once."""
    return cache(lambda rows, groups: FrameInputs.of(rows, *CASES[rows]).run(make(rows, groups, 0), groups, device))


@pytest.mark.parametrize("rows", CASES)
def test_draws_equal_those_of_sorting_its_own_logits(run_frame: RunFrame, rows: int) -> None:
    frame = FrameInputs.of(rows, *CASES[rows])
    for groups in range(2, GROUPS + 1):
        # A launch leaves the logits of its last group only.
        drawn, logits = run_frame(rows, groups)
        noise = frame.noise[:, groups - 2]
        expected, edge = sorted_draw(logits, noise, frame.top_k, frame.top_p, frame.inv_temperature)
        clear = (edge > EDGE) | (noise == 0)
        assert clear.sum() > 0.8 * rows
        assert drawn[clear, -1].tolist() == expected[clear].tolist(), groups


@pytest.mark.parametrize("rows", CASES)
def test_logits_equal_the_reference(run_frame: RunFrame, weights: dict[str, Tensor], rows: int) -> None:
    """The reference runs in float32 and is forced to draw the same codes."""
    frame = FrameInputs.of(rows, *CASES[rows])
    wide = {name: tensor.float() for name, tensor in weights.items()}
    reference = CodePredictor(wide, wide["talker.model.codec_embedding.weight"], SIZE, GROUPS, rows)
    drawn, _ = run_frame(rows, GROUPS)
    forced = ForcedCandidates(drawn)
    reference(frame.hidden.float(), frame.first, forced, frame.noise)  # type: ignore[arg-type]  # stands in for Candidates
    for groups in range(2, GROUPS + 1):
        shorter, logits = run_frame(rows, groups)
        assert torch.equal(shorter, drawn[:, : groups - 1])
        assert torch.allclose(logits, forced.logits[groups - 2], atol=ROUNDING), groups


@pytest.mark.parametrize("rows", [12, 24])
def test_order_of_threads_does_not_change_the_result(
    make: MakePredictor, run_frame: RunFrame, device: torch.device, rows: int
) -> None:
    frame, (codes, logits) = FrameInputs.of(rows, *CASES[rows]), run_frame(rows, GROUPS)
    for _ in range(200 if device.type == "cuda" else 1):
        again, logits_again = frame.run(make(rows, GROUPS, 1), GROUPS, device)
        assert torch.equal(again, codes)
        assert torch.equal(logits_again, logits)


def test_epoch_counter_may_overflow(make: MakePredictor, run_frame: RunFrame, device: torch.device) -> None:
    """A launch uses several of the 2^32 epochs."""
    frame, expected, predictor = FrameInputs.of(12, *CASES[12]), run_frame(12, GROUPS), make(12, GROUPS, 0)
    predictor._epoch.fill_(-GROUPS - 1)
    for _ in range(3):
        again = frame.run(predictor, GROUPS, device)
        assert all(torch.equal(own, other) for own, other in zip(again, expected, strict=True))
    assert 0 < int(predictor._epoch) < 4 * GROUPS * (SIZE.layers + 1)


class RecordingCandidates:
    """`Candidates` that keep the logits of the last draw."""

    def __init__(self, inner: Candidates) -> None:
        self.inner = inner

    def draw(self, logits: Tensor, noise: Tensor) -> Tensor:
        self.logits = logits.clone()
        return self.inner.draw(logits, noise)


@pytest.mark.parametrize("rows", VARIANTS)
def test_self_test_rejects_other_weights_and_a_tile_of_other_codes(
    make: MakePredictor, weights: dict[str, Tensor], device: torch.device, rows: int
) -> None:
    """Against the reference in float32 with the same and with other weights, and with other codes in the last tile."""

    def reference(scale: float, shift: int = 0) -> Reference:
        wide = {name: tensor.float() * (scale if "down_proj" in name else 1) for name, tensor in weights.items()}
        code_predictor = CodePredictor(wide, wide["talker.model.codec_embedding.weight"], SIZE, GROUPS, rows)

        def codes(start: Tensor, first: Tensor, _candidates: Candidates, noise: Tensor) -> tuple[Tensor, Tensor]:
            greedy = Candidates.of(torch.ones(rows), torch.ones(rows, dtype=torch.int64), torch.ones(rows), VOCAB)
            recording = RecordingCandidates(greedy)
            drawn = code_predictor(start.cpu().float(), first.cpu(), recording, noise.cpu())  # type: ignore[arg-type]  # as above
            drawn[-TILE_ROWS:] = (drawn[-TILE_ROWS:] + shift) % VOCAB
            return drawn.to(device), recording.logits.to(device)

        return codes

    predictor, shape = make(rows, GROUPS, 0), shape_of(rows)
    assert self_test(predictor, reference(1.0), shape, rows, device)
    assert not self_test(predictor, reference(1.5), shape, rows, device)
    assert not self_test(predictor, reference(1.0, shift=1), shape, rows, device)


def test_unsupported_sizes_have_no_shape() -> None:
    full = TransformerSize(1024, 3072, 5, 16, 8, 128, 1e-6, 1e6)
    for rows in VARIANTS:
        assert predictor_shape_for(full, 16, 2048, torch.bfloat16, rows) is not None
        assert predictor_shape_for(full, 16, 2048, torch.float32, rows) is None
        assert predictor_shape_for(replace(full, head_dim=64), 16, 2048, torch.bfloat16, rows) is None
        assert predictor_shape_for(replace(full, intermediate=3000), 16, 2048, torch.bfloat16, rows) is None
        assert predictor_shape_for(replace(full, hidden=768), 16, 2048, torch.bfloat16, rows) is None
    # A block has too few warps for the logits of two tiles.
    assert predictor_shape_for(full, 16, 4096, torch.bfloat16, 16) is not None
    assert predictor_shape_for(full, 16, 4096, torch.bfloat16, 32) is None
