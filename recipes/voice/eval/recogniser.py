"""Speech recognition by pocketsphinx with its American English model, which is independent of the voice.

It misrecognises one word in six to nine even of the source voices, so only ratios of error counts are meaningful. Each
process has its own recogniser (`open_recogniser`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .plan import words


@dataclass(frozen=True, slots=True)
class Recognition:
    """`text`: free transcription. `choice`: index of the recognised candidate, None if there is none."""

    text: str
    choice: int | None = None


class SpeechRecogniser:
    """Recognises free text, and one of given candidates."""

    def __init__(self) -> None:
        from pocketsphinx import Decoder  # installed by scripts/eval-voice only

        # Cepstral means over each utterance, so that results do not depend on earlier ones.
        self._decoder = Decoder(samprate=16_000, loglevel="FATAL", cmn="batch")

    def knows(self, text: str) -> bool:
        """Whether every word is in the recogniser's dictionary."""
        return all(self._decoder.lookup_word(word) for word in words(text))

    def recognise(self, samples: NDArray[np.int16], candidates: Sequence[str] = ()) -> Recognition:
        """Recognise int16 [n] at 16 kHz. `candidates`: texts to choose from, all of known words."""
        self._decoder.activate_search()
        text = self._decode(samples)
        if not candidates:
            return Recognition(text)
        texts = [" ".join(words(candidate)) for candidate in candidates]
        self._decoder.add_jsgf_string("choice", f"#JSGF V1.0; grammar g; public <s> = {' | '.join(texts)};")
        self._decoder.activate_search("choice")
        chosen = self._decode(samples)
        return Recognition(text, texts.index(chosen) if chosen in texts else None)

    def _decode(self, samples: NDArray[np.int16]) -> str:
        self._decoder.start_utt()
        self._decoder.process_raw(samples.tobytes(), full_utt=True)
        self._decoder.end_utt()
        found = self._decoder.hyp()
        return str(found.hypstr) if found else ""


_recogniser: SpeechRecogniser | None = None


def open_recogniser() -> None:
    """Create this process's recogniser."""
    global _recogniser
    _recogniser = SpeechRecogniser()


def recognise(samples: NDArray[np.int16], candidates: Sequence[str] = ()) -> Recognition:
    """`SpeechRecogniser.recognise` by this process's recogniser."""
    if _recogniser is None:
        open_recogniser()
    assert _recogniser is not None
    return _recogniser.recognise(samples, candidates)
