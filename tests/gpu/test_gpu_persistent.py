"""The code predictor as one kernel, on a GPU where there is one, else compiled for the CPU, against `CodePredictor`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import Tensor
from voxgate.pipeline.checkpoint import TalkerCheckpoint, TransformerSize
from voxgate.pipeline.talker.gpu_persistent import SOURCE, PersistentPredictor, Shape, agrees, shape_for
from voxgate.pipeline.talker.predictor import CodePredictor
from voxgate.pipeline.talker.predictor_weights import FoldedPredictor
from voxgate.pipeline.talker.sampling import Candidates

from ..pipeline.talker.small_model import small_checkpoint, small_weights
from .cuda_on_cpu import cpu_launch

SIZE = TransformerSize(256, 512, 1, 4, 2, 128, 1e-6, 10_000.0)
VOCAB, GROUPS = 512, 3
SLACK = 0.05
"""What rounding makes of a logit."""


@dataclass
class Forced:
    """`Candidates` that keeps the logits it is shown, and draws what was drawn already."""

    codes: Tensor
    logits: list[Tensor] = field(default_factory=list)

    def draw(self, logits: Tensor, _noise: Tensor) -> Tensor:
        self.logits.append(logits.clone())
        return self.codes[:, len(self.logits) - 1]


def misses(logits: Tensor, drawn: Tensor, noise: Tensor, top_k: int, top_p: float, heat: float) -> Tensor:
    """By how much mass each draw misses the candidate that its noise stands for, were logits SLACK higher or lower."""
    best, _ = torch.sort(logits, dim=1, descending=True)
    mass = torch.softmax(best[:, : top_k or None] * heat, 1)
    best, upto = best[:, : mass.shape[1]], mass.cumsum(1)
    logit = logits.gather(1, drawn[:, None])
    before = torch.where(best > logit + SLACK, mass, 0.0).sum(1)
    down_to = torch.where(best > logit - SLACK, mass, 0.0).sum(1)
    missed = torch.full_like(noise, torch.inf)
    # Rounding also says which candidate is the last.
    for limit in (top_p - SLACK / 2, top_p, top_p + SLACK / 2):
        kept = (upto < limit).sum(1, keepdim=True).clamp(max=mass.shape[1] - 1)
        at = noise * upto.gather(1, kept)[:, 0]
        missed = torch.minimum(missed, torch.maximum(before - at, at - down_to).clamp(min=0))
    return missed


@pytest.fixture(scope="module")
def weights(checkpoint: TalkerCheckpoint) -> dict[str, Tensor]:
    small = replace(small_checkpoint(checkpoint, hidden=SIZE.hidden, groups=GROUPS), predictor=SIZE, codebook=VOCAB)
    return {name: tensor.bfloat16() for name, tensor in small_weights(replace(small, codec_vocab=VOCAB + 32)).items()}


@pytest.fixture(scope="module")
def shape() -> Shape:
    shape = shape_for(SIZE, GROUPS, VOCAB, torch.bfloat16)
    assert shape is not None
    return shape


@pytest.fixture(scope="module")
def predictor(
    weights: dict[str, Tensor], shape: Shape, device: torch.device, tmp_path_factory: pytest.TempPathFactory
) -> PersistentPredictor:
    if device.type == "cuda" and torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("the kernel is for Hopper")
    own = {name: tensor.to(device) for name, tensor in weights.items()}
    folded = FoldedPredictor.of(own, own["talker.model.codec_embedding.weight"], SIZE, GROUPS)
    folder = tmp_path_factory.mktemp("kernel")
    launch = None if device.type == "cuda" else cpu_launch(SOURCE, shape.macros(), folder)
    return PersistentPredictor(shape, folded, SIZE.norm_eps, launch)


@pytest.mark.parametrize(("rows", "top_k", "top_p"), [(1, 0, 1.0), (12, 20, 0.6), (16, 0, 0.7)])
def test_draws_are_those_of_the_plain_predictor(
    predictor: PersistentPredictor, weights: dict[str, Tensor], device: torch.device, rows: int, top_k: int,
    top_p: float,
) -> None:  # fmt: skip  # one argument list
    generator = torch.Generator().manual_seed(rows)
    hidden = torch.randn(rows, SIZE.hidden, generator=generator).bfloat16()
    first = torch.randint(VOCAB, (rows,), generator=generator)
    noise = torch.rand(rows, GROUPS - 1, generator=generator)
    noise[0] = 0.0
    options = Candidates(
        torch.full((rows, 1), 1 / 0.8, device=device), torch.zeros(rows, dtype=torch.bool, device=device),
        torch.full((rows, 1), top_k or VOCAB, device=device), torch.full((rows, 1), top_p, device=device), VOCAB,
    )  # fmt: skip  # one argument list
    drawn = predictor(hidden.to(device), first.to(device), options, noise.to(device)).cpu()
    # The plain predictor is led along the codes drawn, so that every draw can be judged by itself.
    wide = {name: tensor.float() for name, tensor in weights.items()}
    forced = Forced(drawn)
    plain = CodePredictor(wide, wide["talker.model.codec_embedding.weight"], SIZE, GROUPS, rows)
    plain(hidden.float(), first, forced, noise)  # type: ignore[arg-type]  # stands in for Candidates
    assert torch.allclose(predictor.last_logits(rows).cpu(), forced.logits[-1], atol=0.1)
    for group, logits in enumerate(forced.logits):
        assert misses(logits, drawn[:, group], noise[:, group], top_k, top_p, 1 / 0.8).max() < 0.03, group


def test_only_what_does_as_the_others_do_is_trusted(
    predictor: PersistentPredictor, weights: dict[str, Tensor], shape: Shape, device: torch.device
) -> None:
    """Against the plain predictor in float32, and against one of other weights."""

    class Watched:
        def __init__(self, inner: Candidates) -> None:
            self.inner = inner

        def draw(self, logits: Tensor, noise: Tensor) -> Tensor:
            self.logits = logits.clone()
            return self.inner.draw(logits, noise)

    def reference(scale: float) -> object:
        wide = {name: tensor.float() * (scale if "down_proj" in name else 1) for name, tensor in weights.items()}
        plain = CodePredictor(wide, wide["talker.model.codec_embedding.weight"], SIZE, GROUPS, 16)

        def codes(start: Tensor, first: Tensor, _candidates: Candidates, noise: Tensor) -> tuple[Tensor, Tensor]:
            rows = len(start)
            best = Candidates.of(torch.ones(rows), torch.ones(rows, dtype=torch.int64), torch.ones(rows), VOCAB)
            watched = Watched(best)
            made = plain(start.cpu().float(), first.cpu(), watched, noise.cpu())  # type: ignore[arg-type]  # as above
            return made.to(device), watched.logits.to(device)

        return codes

    assert agrees(predictor, reference(1.0), shape, device)  # type: ignore[arg-type]  # a function
    assert not agrees(predictor, reference(1.5), shape, device)  # type: ignore[arg-type]  # a function


def test_what_does_not_fit_is_left_to_the_others() -> None:
    full = TransformerSize(1024, 3072, 5, 16, 8, 128, 1e-6, 1e6)
    assert shape_for(full, 16, 2048, torch.bfloat16) is not None
    assert shape_for(full, 16, 2048, torch.float32) is None
    assert shape_for(replace(full, head_dim=64), 16, 2048, torch.bfloat16) is None
    assert shape_for(replace(full, intermediate=3000), 16, 2048, torch.bfloat16) is None
