"""Embeddings of speech by Resemblyzer's encoder, whose cosine is the similarity of two speakers.

The encoder (Wan et al., "Generalized End-to-End Loss for Speaker Verification", 2018) is a small recurrent network. Its
package is not imported, because it needs many others; only its weights are read.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

RATE_HZ = 16_000
_FFT, _HOP, _MELS = 400, 160, 40
_WINDOW_FRAMES, _STEP_FRAMES = 160, 80
"""1.6 s, the extent that the encoder was trained on, and half of it."""
_LEVEL = 10 ** (-30 / 20)
_PACKAGE = "resemblyzer"


class SpeakerJudge:
    """Turns speech into an embedding of its speaker."""

    def __init__(self) -> None:
        """Raises ModuleNotFoundError."""
        found = find_spec(_PACKAGE)
        if found is None or found.origin is None:
            message = f"the package {_PACKAGE} is missing; scripts/eval-voice installs it"
            raise ModuleNotFoundError(message, name=_PACKAGE)
        state = torch.load(Path(found.origin).parent / "pretrained.pt", map_location="cpu", weights_only=True)
        self._lstm = nn.LSTM(_MELS, 256, 3, batch_first=True)
        self._linear = nn.Linear(256, 256)
        for name, module in (("lstm", self._lstm), ("linear", self._linear)):
            weights = {key.removeprefix(f"{name}."): value for key, value in state["model_state"].items()}
            module.load_state_dict({key: weights[key] for key in module.state_dict()})
        self._filters = torch.from_numpy(mel_filters())

    @torch.inference_mode()
    def embed(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Speech float32 [n] at 16 kHz, not silent -> unit vector float32 [256]."""
        loud = samples * (_LEVEL / np.sqrt(np.mean(samples.astype(np.float64) ** 2)))
        frames = self._mel(torch.from_numpy(loud.astype(np.float32)))
        missing = max(0, _WINDOW_FRAMES - len(frames))
        windows = nn.functional.pad(frames, (0, 0, 0, missing)).unfold(0, _WINDOW_FRAMES, _STEP_FRAMES)
        _, (hidden, _) = self._lstm(windows.transpose(1, 2))
        embeddings = nn.functional.normalize(torch.relu(self._linear(hidden[-1])), dim=1)
        mean: NDArray[np.float32] = nn.functional.normalize(embeddings.mean(0), dim=0).numpy()
        return mean

    def _mel(self, samples: Tensor) -> Tensor:
        """Power in mel bands, [frames, 40]."""
        window = torch.hann_window(_FFT)
        spectrum = torch.stft(samples, _FFT, _HOP, window=window, pad_mode="constant", return_complex=True)
        return (self._filters @ spectrum.abs() ** 2).T


def mel_filters() -> NDArray[np.float32]:
    """Triangular filters of equal area on Slaney's mel scale, [40, 201]: linear to 1 kHz, logarithmic above."""
    break_hz, break_mel, step = 1000.0, 15.0, np.log(6.4) / 27
    top = break_mel + np.log(RATE_HZ / 2 / break_hz) / step
    mels = np.linspace(0, top, _MELS + 2)
    edges_hz = np.where(mels < break_mel, mels * 200 / 3, break_hz * np.exp(step * (mels - break_mel)))
    bins_hz = np.linspace(0, RATE_HZ / 2, _FFT // 2 + 1)
    rising = (bins_hz - edges_hz[:-2, None]) / np.diff(edges_hz)[:-1, None]
    falling = (edges_hz[2:, None] - bins_hz) / np.diff(edges_hz)[1:, None]
    areas = 2 / (edges_hz[2:] - edges_hz[:-2])
    filters: NDArray[np.float32] = (np.clip(np.minimum(rising, falling), 0, None) * areas[:, None]).astype(np.float32)
    return filters
