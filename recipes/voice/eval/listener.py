"""A recogniser that knows nothing of the voice: pocketsphinx with its own American English model.

It hears a word wrong in six to nine even of the source voices, so that only the ratio of two error counts means
something. Each process has a recogniser of its own (`open_recogniser`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .texts import words


@dataclass(frozen=True, slots=True)
class Recognition:
    """`text`: any words at all. `choice`: which of the candidates it is most like; None when not asked, or none."""

    text: str
    choice: int | None = None


class SpeechRecogniser:
    def __init__(self) -> None:
        from pocketsphinx import Decoder  # only who listens needs it

        # Means over the whole utterance: what was heard before must not matter.
        self._decoder = Decoder(samprate=16_000, loglevel="FATAL", cmn="batch")

    def knows(self, text: str) -> bool:
        """Whether every word is in the recogniser's dictionary."""
        return all(self._decoder.lookup_word(word) for word in words(text))

    def listen(self, samples: NDArray[np.int16], candidates: Sequence[str] = ()) -> Recognition:
        """Int16 [n] at 16 kHz. `candidates`: texts to choose among, all of known words."""
        self._decoder.activate_search()
        text = self._decode(samples)
        if not candidates:
            return Recognition(text)
        said = [" ".join(words(candidate)) for candidate in candidates]
        self._decoder.add_jsgf_string("choice", f"#JSGF V1.0; grammar g; public <s> = {' | '.join(said)};")
        self._decoder.activate_search("choice")
        chosen = self._decode(samples)
        return Recognition(text, said.index(chosen) if chosen in said else None)

    def _decode(self, samples: NDArray[np.int16]) -> str:
        self._decoder.start_utt()
        self._decoder.process_raw(samples.tobytes(), full_utt=True)
        self._decoder.end_utt()
        found = self._decoder.hyp()
        return str(found.hypstr) if found else ""


_ears: SpeechRecogniser | None = None


def open_recogniser() -> None:
    """Make this process's recogniser, where processes are many."""
    global _ears
    _ears = SpeechRecogniser()


def listen(samples: NDArray[np.int16], candidates: Sequence[str] = ()) -> Recognition:
    """`SpeechRecogniser.listen` by this process's own recogniser."""
    if _ears is None:
        open_recogniser()
    assert _ears is not None
    return _ears.listen(samples, candidates)
