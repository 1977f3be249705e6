"""Source speech through the codec alone, to separate the codec's errors from the talker's.

The voice has no encoder; the recipe's tokenizer (`codes.safetensors` of a training run) encodes instead.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch.nn import functional
from train.codec.mel_tokenizer import MelTokenizer
from train.speech.audio import tokenizer_mel
from voxgate.codecs.neural.decoder import CodecDecoder
from voxgate.codecs.pcm import Pcm

from .plan import Task
from .sources import Sources


class RoundTrip:
    """Encodes with the recipe's tokenizer and decodes with the checkpoint's codec."""

    def __init__(self, encoder: Path, checkpoint: Path, sources: Sources) -> None:
        """Raises OSError for missing files, and ValueError for an encoder of another model."""
        self._sources = sources
        self._decoder = CodecDecoder.from_checkpoint(checkpoint / "speech_tokenizer")
        self._tokenizer = MelTokenizer().eval()
        missing, surplus = self._tokenizer.load_state_dict(load_file(encoder), strict=False)
        lacking = [name for name in missing if not name.startswith("mel_decoder.")]
        if lacking or surplus:
            raise ValueError(
                f"{encoder} must hold this recipe's tokenizer: missing tensors {lacking}, unexpected tensors {surplus}"
            )

    async def __call__(self, task: Task) -> tuple[Pcm, bool]:
        """The source's reading of a task's text at the level used in training, encoded and decoded."""
        return self.through(self._sources.read(task.key.voice, task.key.spoken)), True

    def first_codes(self, samples: NDArray[np.int16]) -> NDArray[np.int16]:
        """Samples at 24 kHz in whole frames -> the first code of each frame."""
        audio = torch.from_numpy(samples / np.float32(32768))
        with torch.inference_mode():
            codes: NDArray[np.int64] = self._tokenizer.encode(tokenizer_mel(audio[None]))[0, :, 0].numpy()
        return codes.astype(np.int16)

    def through(self, pcm: Pcm) -> Pcm:
        """Encode and decode float32 [n] at 24 kHz -> float32 [m], padded to whole frames."""
        whole = functional.pad(torch.from_numpy(pcm), (0, -len(pcm) % self._decoder.frame_samples))
        with torch.inference_mode():
            codes = self._tokenizer.encode(tokenizer_mel(whole[None]))
            decoded: Pcm = self._decoder.decode_all(codes)[0].float().numpy()
        return decoded
