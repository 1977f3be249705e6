"""Kokoro's encoders of text, and its prediction of durations, pitch and energy.

All steps beyond a sentence's end are zero; `valid` marks the others.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_STYLE, _HIDDEN, _PHONEMES = 128, 512, 178
_LAYERS, _HEADS, _LONGEST = 12, 12, 512


def valid_steps(frames: Tensor, steps: int, longest: int) -> Tensor:
    """Valid steps, float [batch, 1, steps], of sentences of `frames` [batch], the longest of which has `longest`."""
    scale = steps // longest
    ends = frames * scale + (steps - longest * scale)
    return (torch.arange(steps, device=frames.device) < ends[:, None])[:, None].float()


def packed(lstm: nn.LSTM, x: Tensor, lengths: Tensor) -> Tensor:
    """The LSTM's output for padded sequences [batch, T, channels]; lengths on the CPU."""
    sequence = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    made: Tensor = nn.utils.rnn.pad_packed_sequence(lstm(sequence)[0], batch_first=True, total_length=x.shape[1])[0]
    return made


def _bidirectional(inputs: int) -> nn.LSTM:
    return nn.LSTM(inputs, _HIDDEN // 2, batch_first=True, bidirectional=True)


class StyledNorm(nn.Module):
    """Instance norm over the valid steps, scaled and shifted by the style."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc = nn.Linear(_STYLE, 2 * channels)

    def forward(self, x: Tensor, style: Tensor, valid: Tensor) -> Tensor:
        """[batch, channels, steps] -> the same, zero where not valid."""
        scale, shift = self.fc(style)[..., None].chunk(2, 1)
        count = valid.sum(-1, keepdim=True)
        centred = x - (x * valid).sum(-1, keepdim=True) / count
        variance = (centred * valid).square().sum(-1, keepdim=True) / count
        made: Tensor = ((1 + scale) * (centred * torch.rsqrt(variance + 1e-5)) + shift) * valid
        return made


class StyledLayerNorm(nn.Module):
    """Layer norm, scaled and shifted by the style."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(_STYLE, 2 * _HIDDEN)

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        """[batch, T, channels] -> the same."""
        scale, shift = self.fc(style)[:, None].chunk(2, -1)
        return (1 + scale) * F.layer_norm(x, (_HIDDEN,)) + shift


class StyledBlock(nn.Module):
    """A residual block with styled norms; `doubles`: the number of steps."""

    def __init__(self, inputs: int, outputs: int, *, doubles: bool = False) -> None:
        super().__init__()
        self.norm1, self.norm2 = StyledNorm(inputs), StyledNorm(outputs)
        self.conv1, self.conv2 = nn.Conv1d(inputs, outputs, 3, padding=1), nn.Conv1d(outputs, outputs, 3, padding=1)
        self.conv1x1 = nn.Conv1d(inputs, outputs, 1, bias=False) if inputs != outputs else nn.Identity()
        self.pool = (
            nn.ConvTranspose1d(inputs, inputs, 3, 2, padding=1, output_padding=1, groups=inputs)
            if doubles
            else nn.Identity()
        )
        self._scale = 2 if doubles else 1

    def forward(self, x: Tensor, style: Tensor, valid: Tensor) -> Tensor:
        """[batch, inputs, steps], valid [batch, 1, steps] -> [batch, outputs, steps], or twice as many steps."""
        doubled = valid.repeat_interleave(self._scale, -1)
        y = self.pool(F.leaky_relu(self.norm1(x, style, valid), 0.2)) * doubled
        y = self.conv2(F.leaky_relu(self.norm2(self.conv1(y), style, doubled), 0.2))
        shortcut = self.conv1x1(x.repeat_interleave(self._scale, -1))
        made: Tensor = (y + shortcut) * math.sqrt(0.5)
        return made


class TokenLayer(nn.Module):
    """The transformer layer that all twelve share, with norms after the residual."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.ModuleDict({name: nn.Linear(768, 768) for name in ("query", "key", "value", "dense")})
        self.attention["LayerNorm"] = nn.LayerNorm(768, 1e-12)
        self.ffn, self.ffn_output = nn.Linear(768, 2048), nn.Linear(2048, 768)
        self.full_layer_layer_norm = nn.LayerNorm(768, 1e-12)

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """[batch, T, 768], valid bool [batch, T] -> [batch, T, 768]."""
        query, key, value = (
            self.attention[name](x).unflatten(-1, (_HEADS, -1)).transpose(1, 2) for name in ("query", "key", "value")
        )
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        mixed = scores.masked_fill(~valid[:, None, None], -1e9).softmax(-1) @ value
        x = self.attention["LayerNorm"](x + self.attention["dense"](mixed.transpose(1, 2).flatten(2)))
        made: Tensor = self.full_layer_layer_norm(self.ffn_output(F.gelu(self.ffn(x), approximate="tanh")) + x)
        return made


class TokenEncoder(nn.Module):
    """ALBERT over phonemes."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(_PHONEMES, 128),
                "position_embeddings": nn.Embedding(_LONGEST, 128),
                "token_type_embeddings": nn.Embedding(2, 128),
                "LayerNorm": nn.LayerNorm(128, 1e-12),
            }
        )
        self.encoder = nn.ModuleDict({"embedding_hidden_mapping_in": nn.Linear(128, 768)})
        self.layer = TokenLayer()

    def forward(self, tokens: Tensor, valid: Tensor) -> Tensor:
        """int64 [batch, T], valid bool [batch, T] -> [batch, T, 768]."""
        parts = self.embeddings
        x = parts["word_embeddings"](tokens) + parts["position_embeddings"].weight[: tokens.shape[1]]
        x = parts["LayerNorm"](x + parts["token_type_embeddings"].weight[0])
        x = self.encoder["embedding_hidden_mapping_in"](x)
        for _ in range(_LAYERS):
            x = self.layer(x, valid)
        return x


class ChannelNorm(nn.Module):
    """Layer norm over the channels of [batch, channels, T]."""

    def __init__(self) -> None:
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(_HIDDEN)), nn.Parameter(torch.zeros(_HIDDEN))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x.transpose(1, 2), (_HIDDEN,), self.gamma, self.beta).transpose(1, 2)


class TextEncoder(nn.Module):
    """Phonemes for the sound: convolutions and an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(_PHONEMES, _HIDDEN)
        self.cnn = nn.ModuleList(
            nn.Sequential(nn.Conv1d(_HIDDEN, _HIDDEN, 5, padding=2), ChannelNorm(), nn.LeakyReLU(0.2)) for _ in range(3)
        )
        self.lstm = _bidirectional(_HIDDEN)

    def forward(self, tokens: Tensor, lengths: Tensor, valid: Tensor) -> Tensor:
        """int64 [batch, T] -> [batch, T, 512]."""
        x = self.embedding(tokens).transpose(1, 2) * valid[:, None]
        for block in self.cnn:
            x = block(x) * valid[:, None]
        return packed(self.lstm, x.transpose(1, 2), lengths)


class StyledTextEncoder(nn.Module):
    """Phonemes with their style, for durations, pitch and energy: three LSTMs with norms."""

    def __init__(self) -> None:
        super().__init__()
        self.lstms = nn.ModuleList()
        for _ in range(3):
            self.lstms.extend([_bidirectional(_HIDDEN + _STYLE), StyledLayerNorm()])

    def forward(self, x: Tensor, style: Tensor, lengths: Tensor, valid: Tensor) -> Tensor:
        """[batch, T, 512] -> [batch, T, 640]."""
        everywhere = style[:, None].expand(-1, x.shape[1], -1)
        x = torch.cat([x, everywhere], -1) * valid[..., None]
        for lstm, norm in zip(self.lstms[::2], self.lstms[1::2], strict=True):
            x = norm(packed(lstm, x, lengths), style)
            x = torch.cat([x, everywhere], -1) * valid[..., None]
        return x


class ProsodyPredictor(nn.Module):
    """Durations of phonemes, and pitch and energy at 80 Hz."""

    def __init__(self) -> None:
        super().__init__()
        self.text_encoder = StyledTextEncoder()
        self.lstm, self.shared = _bidirectional(_HIDDEN + _STYLE), _bidirectional(_HIDDEN + _STYLE)
        self.duration_proj = nn.Linear(_HIDDEN, 50)
        half = _HIDDEN // 2
        for name in ("F0", "N"):
            blocks = (StyledBlock(_HIDDEN, _HIDDEN), StyledBlock(_HIDDEN, half, doubles=True), StyledBlock(half, half))
            self.add_module(name, nn.ModuleList(blocks))
            self.add_module(f"{name}_proj", nn.Conv1d(half, 1, 1))

    def durations(self, encoded: Tensor, lengths: Tensor) -> Tensor:
        """Encoded text [batch, T, 640] -> frames of 25 ms, int64 [batch, T], at least 1."""
        ticks = torch.sigmoid(self.duration_proj(packed(self.lstm, encoded, lengths))).sum(-1)
        return ticks.round().clamp(min=1).long()

    def curves(self, aligned: Tensor, style: Tensor, frames: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Encoded text for each frame [batch, T, 640] -> pitch in Hz and energy, [batch, 2 T].

        frames: of each sentence, on the device; counts: the same on the CPU.
        """
        shared = packed(self.shared, aligned, counts).transpose(1, 2)
        valid = valid_steps(frames, shared.shape[-1], shared.shape[-1])
        doubled = valid.repeat_interleave(2, -1)
        made = []
        for name in ("F0", "N"):
            first, second, third = self.get_submodule(name).children()
            x = third(second(first(shared, style, valid), style, valid), style, doubled)
            made.append((self.get_submodule(f"{name}_proj")(x) * doubled).squeeze(1))
        return made[0], made[1]
