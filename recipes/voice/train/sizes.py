"""Sizes and ids of the demo voice, from which its configuration files are written (`export.py`)."""

from __future__ import annotations

from dataclasses import dataclass

SAMPLE_RATE_HZ = 24_000
FRAME_SAMPLES = 1920
"""Samples of one codec frame at 24 kHz: 80 ms."""
FRAMES_PER_HOUR = 45_000

CODEBOOKS = 16
CODEBOOK_SIZE = 512
PHONES = 41
PHONES_PER_FRAME = 4
"""Phones are labelled every 20 ms."""

# Text side: ids of the tokenizer's special tokens.
IM_START, IM_END, ASSISTANT, NEWLINE, TEXT_PAD, TEXT_BOS, TEXT_EOS = 1, 2, 3, 4, 5, 6, 7
TEXT_VOCABULARY = 2048

# Codec side: rows after the entries of the first codebook.
CODEC_PAD, CODEC_BOS, CODEC_EOS = CODEBOOK_SIZE, CODEBOOK_SIZE + 1, CODEBOOK_SIZE + 2
CODEC_THINK, CODEC_NOTHINK = CODEBOOK_SIZE + 3, CODEBOOK_SIZE + 4
CODEC_THINK_BOS, CODEC_THINK_EOS = CODEBOOK_SIZE + 5, CODEBOOK_SIZE + 6
SPEAKERS = {name: CODEBOOK_SIZE + 8 + n for n, name in enumerate(("heart", "michael", "emma", "george"))}
TRAINED_ROWS = CODEBOOK_SIZE + 16
"""Rows of the codec vocabulary that are trained."""
PUBLISHED_ROWS = CODEBOOK_SIZE + 1024
"""Rows of the published table, of which the untrained are zero. Samplers suppress the last 1024 but end of speech."""


def voice_shares(parts: str) -> dict[str, float]:
    """Shares of the voices in training, from an option: parts in the order of SPEAKERS, such as "3,2,2,2".

    Raises ValueError for another number of parts and for a part that is not above 0.
    """
    numbers = [float(part) for part in parts.split(",")]
    if len(numbers) != len(SPEAKERS) or min(numbers) <= 0:
        raise ValueError(f"shares must be {len(SPEAKERS)} numbers above 0, not {parts}")
    return {voice: number / sum(numbers) for voice, number in zip(SPEAKERS, numbers, strict=True)}


EQUAL_SHARES = dict.fromkeys(SPEAKERS, 1 / len(SPEAKERS))


@dataclass(frozen=True, slots=True)
class LayerStackSize:
    """Size of a stack of transformer layers; the codec's have `layer_scale`, the talker's `qk_norm`."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    rope_theta: float = 10_000.0
    qk_norm: bool = True
    layer_scale: float | None = None


@dataclass(frozen=True, slots=True)
class DecoderSize:
    """Size of the codec decoder: quantizer, transformer at 12.5 Hz, vocoder."""

    codebook_dim: int
    latent: int
    transformer: LayerStackSize
    sliding_window: int
    upsampling_ratios: tuple[int, ...]
    upsample_rates: tuple[int, ...]
    vocoder: int


TEXT_HIDDEN = 256
TALKER = LayerStackSize(320, 896, 7, 6, 2, 64, 1e-6)
PREDICTOR = LayerStackSize(192, 384, 4, 3, 1, 64, 1e-6)
DECODER = DecoderSize(
    codebook_dim=192,
    latent=256,
    transformer=LayerStackSize(256, 512, 6, 4, 4, 64, 1e-5, qk_norm=False, layer_scale=0.1),
    sliding_window=24,
    upsampling_ratios=(2, 2),
    upsample_rates=(8, 5, 4, 3),
    vocoder=512,
)
