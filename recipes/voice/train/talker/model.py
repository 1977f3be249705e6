"""The talker and its code predictor for training, with the published tensor names.

They process whole rows of documents in parallel, with gradients, unlike the gateway's, which generate frame by frame.
`docs/qwen3_tts.md`, sections 4 to 7, describes the model.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..sizes import (
    CODEBOOK_SIZE,
    CODEBOOKS,
    PREDICTOR,
    TALKER,
    TEXT_HIDDEN,
    TEXT_VOCABULARY,
    TRAINED_ROWS,
    LayerStackSize,
)
from ..transformer import CausalTransformer, additive_mask


class Backbone(CausalTransformer):
    """The talker's transformer with its embedding tables."""

    def __init__(self, size: LayerStackSize, dropout: float) -> None:
        super().__init__(size, dropout)
        self.codec_embedding = nn.Embedding(TRAINED_ROWS, size.hidden)
        self.text_embedding = nn.Embedding(TEXT_VOCABULARY, TEXT_HIDDEN)


class PredictorStack(CausalTransformer):
    """The code predictor's transformer with its embedding tables."""

    def __init__(self, size: LayerStackSize, talker_hidden: int) -> None:
        super().__init__(size)
        tables = [nn.Embedding(CODEBOOK_SIZE, talker_hidden) for _ in range(CODEBOOKS - 1)]
        self.codec_embedding = nn.ModuleList(tables)


class CodePredictorNetwork(nn.Module):
    """The code predictor: projection of its inputs, transformer, and a head for each code."""

    def __init__(self, size: LayerStackSize, talker_hidden: int) -> None:
        super().__init__()
        self.model = PredictorStack(size, talker_hidden)
        heads = [nn.Linear(size.hidden, CODEBOOK_SIZE, bias=False) for _ in range(CODEBOOKS - 1)]
        self.lm_head = nn.ModuleList(heads)
        self.small_to_mtp_projection = nn.Linear(talker_hidden, size.hidden)


class TextProjection(nn.Module):
    """Perceptron from text embeddings to the talker's width."""

    def __init__(self, text_hidden: int, hidden: int) -> None:
        super().__init__()
        self.linear_fc1, self.linear_fc2 = nn.Linear(text_hidden, text_hidden), nn.Linear(text_hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear_fc2(F.silu(self.linear_fc1(x)))


class TalkerNetwork(nn.Module):
    """Predicts the first code of each frame from text and history, and the other fifteen from that state."""

    def __init__(self, size: LayerStackSize = TALKER, predictor: LayerStackSize = PREDICTOR, dropout: float = 0.0):
        super().__init__()
        self.model = Backbone(size, dropout)
        self.text_projection = TextProjection(TEXT_HIDDEN, size.hidden)
        self.codec_head = nn.Linear(size.hidden, TRAINED_ROWS, bias=False)
        self.code_predictor = CodePredictorNetwork(predictor, size.hidden)
        self._initialise(size.layers)

    def _initialise(self, layers: int) -> None:
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.05 if "text_embedding" in name else 0.02)
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5)

    def frame_embedding(self, codes: Tensor) -> Tensor:
        """Sum of the embeddings of a frame's codes: int [..., 16] -> [..., hidden]."""
        total = self.model.codec_embedding(codes[..., 0])
        for index, table in enumerate(self.code_predictor.model.codec_embedding):
            total = total + table(codes[..., index + 1])
        return total

    def inputs(self, text: Tensor, history: Tensor, fed: Tensor, entry: Tensor) -> Tensor:
        """The transformer's input: sum of text-side and codec-side embeddings.

        text: int [rows, T]. history: int [rows, T, 16], used where `fed`. entry: int [rows, T], a row of the codec
        table (speaker, begin-of-codec, ...) or -1.
        """
        x = self.text_projection(self.model.text_embedding.weight)[text]
        x = x + self.frame_embedding(history) * fed[..., None]
        return x + self.model.codec_embedding(entry.clamp(min=0)) * (entry >= 0)[..., None]

    def hidden(self, x: Tensor, position: Tensor, document: Tensor) -> Tensor:
        """Hidden states [rows, T, hidden]; each position attends to its document up to itself."""
        length = position.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        allowed = (document[:, :, None] == document[:, None, :]) & causal
        return self.model(x, position, additive_mask(allowed)[:, None])

    def residual_logits(self, hidden: Tensor, codes: Tensor) -> Tensor:
        """Logits of the fifteen other codes of each frame in parallel: [n, hidden], int [n, 16] -> [n, 15, 512].

        Each code is predicted from the talker's state and the codes before it; `codes[:, 15]` is not used.
        """
        tables = self.code_predictor.model.codec_embedding
        steps = [hidden, self.model.codec_embedding(codes[:, 0])]
        steps += [table(codes[:, index + 1]) for index, table in enumerate(tables) if index < CODEBOOKS - 2]
        x = self.code_predictor.small_to_mtp_projection(torch.stack(steps, 1))
        states = self.code_predictor.model(x, torch.arange(CODEBOOKS, device=x.device))[:, 1:]
        heads = torch.stack([head.weight for head in self.code_predictor.lm_head])
        return torch.einsum("nih,ivh->niv", states, heads.to(states.dtype))
