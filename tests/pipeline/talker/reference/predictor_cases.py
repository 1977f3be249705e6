"""Inputs and expected codes for tests of code predictors."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint
from voxgate.pipeline.talker.reference.predictor import Predictor
from voxgate.pipeline.talker.reference.sampling import Candidates

from ..plain_talker import Stack, choose
from ..small_model import PREDICTOR, plain_config

ROWS = 6
MIN_MARGIN = 1e-4
"""Mass between a draw and the nearest other code, below which rounding may decide."""

Kind = type[Predictor]


def predictor_of(kind: Kind, checkpoint: TalkerCheckpoint, weights: dict[str, Tensor], rows: int = ROWS) -> Predictor:
    first = weights["talker.model.codec_embedding.weight"]
    return kind(weights, first, checkpoint.predictor, checkpoint.groups, rows)


def expected_codes(
    checkpoint: TalkerCheckpoint,
    weights: dict[str, Tensor],
    hidden: Tensor,
    first: int,
    noise: list[float],
    *,
    temperature: float = 0.8,
    top_k: int = 0,
    top_p: float = 1.0,
) -> tuple[list[int], float]:
    """One frame as `docs/qwen3_tts.md`, section 7, describes it: the codes, and the smallest margin of a draw."""
    stack = Stack(weights, f"{PREDICTOR}model.", plain_config(checkpoint.predictor))
    projection = f"{PREDICTOR}small_to_mtp_projection."

    def narrow(x: Tensor) -> Tensor:
        weight = weights.get(projection + "weight")
        return x if weight is None else F.linear(x, weight, weights[projection + "bias"])

    cache: list = []
    codes, min_margin = [], 1.0
    x = torch.stack([narrow(hidden), narrow(weights["talker.model.codec_embedding.weight"][first])])
    for group, uniform in enumerate(noise):
        logits = weights[f"{PREDICTOR}lm_head.{group}.weight"] @ stack.run(x, cache)[-1]
        code, margin = choose(logits, temperature, top_k, top_p, uniform)
        codes.append(code)
        min_margin = min(min_margin, margin)
        x = narrow(weights[f"{PREDICTOR}model.codec_embedding.{group}.weight"][code])[None]
    return codes, min_margin


def sampling(rows: int, vocab: int, temperature: float = 0.8) -> Candidates:
    return Candidates.of(torch.full((rows,), temperature), torch.zeros(rows, dtype=torch.long), torch.ones(rows), vocab)


def frames(checkpoint: TalkerCheckpoint, rows: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, codes of codebook 0 and noise for a batch."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, checkpoint.talker.hidden, generator=generator)
    first = torch.randint(checkpoint.codebook, (rows,), generator=generator)
    return hidden, first, torch.rand(rows, checkpoint.groups - 1, generator=generator)
