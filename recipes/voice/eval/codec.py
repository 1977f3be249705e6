"""The source through the codec alone: what of the errors is the codec's, before the talker adds its own.

Published voices have no encoder; the recipe keeps its own (`codes.safetensors` of a training run).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch.nn import functional
from train.codec.mel_tokenizer import MelTokenizer
from train.speech.audio import tokenizer_mel
from train.speech.synthesis import GAINS
from voxgate.codecs.neural.decoder import CodecDecoder
from voxgate.codecs.pcm import Pcm

from . import sources
from .plan import Task


class RoundTrip:
    """Encodes with the recipe's tokenizer and decodes with the checkpoint's codec."""

    def __init__(self, encoder: Path, checkpoint: Path) -> None:
        """OSError without either; ValueError when the file holds another model's weights."""
        self._decoder = CodecDecoder.from_checkpoint(checkpoint / "speech_tokenizer")
        self._tokenizer = MelTokenizer().eval()
        missing, surplus = self._tokenizer.load_state_dict(load_file(encoder), strict=False)
        lacking = [name for name in missing if not name.startswith("mel_decoder.")]
        if lacking or surplus:
            raise ValueError(f"{encoder} is no encoder of this recipe: lacks {lacking}, has {surplus} besides")

    async def __call__(self, task: Task) -> tuple[Pcm, bool]:
        """The source's reading of a task's text, as loud as the codec was taught it, encoded and decoded."""
        voice = task.said.voice
        return self.through(sources.read(voice, task.said.spoken) * np.float32(GAINS[voice])), True

    def through(self, pcm: Pcm) -> Pcm:
        """Float32 [n] at 24 kHz -> float32 [m], n filled up to whole frames."""
        whole = functional.pad(torch.from_numpy(pcm), (0, -len(pcm) % self._decoder.frame_samples))
        with torch.inference_mode():
            codes = self._tokenizer.encode(tokenizer_mel(whole[None]))
            decoded: Pcm = self._decoder.decode_all(codes)[0].float().numpy()
        return decoded
