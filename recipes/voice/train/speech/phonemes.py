"""Phonemes of English text, and the times of phones and words from the durations of phonemes.

Both teachers read the phonemes of hibari-tts' conversion (misaki's rules and lexica), which is used in training only.
"""

# ruff: noqa: RUF001 - phonemes are written in the phonetic alphabet.

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .reading import PAUSE, TimedPhone, TimedWord

TICK_S = 0.025
"""Unit of the teachers' durations."""
_PAUSES = ',.!?;:—…"“”()'
_LENGTH = "ː"
_PHONES = {
    **{"A": "ey", "I": "ay", "O": "ow", "Q": "ow", "W": "aw", "Y": "oy", "i": "iy", "u": "uw", "a": "ae", "o": "ow"},
    **{"æ": "ae", "ɐ": "ah", "ɑ": "aa", "ɒ": "aa", "ɔ": "ao", "ə": "ax", "ᵊ": "ax", "ɛ": "eh", "e": "eh", "ɜ": "er"},
    **{"ɚ": "er", "ɪ": "ih", "ᵻ": "ih", "ʊ": "uh", "ʌ": "ah", "b": "b", "d": "d", "f": "f", "ɡ": "g", "h": "hh"},
    **{"j": "y", "k": "k", "l": "l", "m": "m", "n": "n", "ŋ": "ng", "p": "p", "ɹ": "r", "r": "r", "s": "s", "t": "t"},
    **{"T": "t", "ɾ": "t", "ʔ": "t", "v": "v", "w": "w", "z": "z", "ð": "dh", "θ": "th", "ʃ": "sh", "ʒ": "zh"},
    **{"ʤ": "jh", "ʧ": "ch", "x": "k", "ʣ": "z", "ʦ": "s"},
}
"""The package's phonemes (misaki's) and the phones that label speech."""
_LETTERS = {
    **{"a": "ˈA", "b": "bˈi", "c": "sˈi", "d": "dˈi", "e": "ˈi", "f": "ˈɛf", "g": "ʤˈi", "h": "ˈAʧ", "i": "ˈI"},
    **{"j": "ʤˈA", "k": "kˈA", "l": "ˈɛl", "m": "ˈɛm", "n": "ˈɛn", "o": "ˈO", "p": "pˈi", "q": "kjˈu", "r": "ˈɑɹ"},
    **{"s": "ˈɛs", "t": "tˈi", "u": "jˈu", "v": "vˈi", "w": "dˈʌbᵊlju", "x": "ˈɛks", "y": "wˈI", "z": "zˈi"},
}
_BRITISH_LETTERS = {
    **{letter: re.sub("[iu]$", r"\g<0>ː", name) for letter, name in _LETTERS.items()},
    **{"o": "ˈQ", "r": "ˈɑː", "z": "zˈɛd"},
}


def with_letter_names(spoken: str, *, british: bool = False) -> str:
    """Give single letters their names, in the package's notation; "a" and "i" only beside another single letter."""
    names = _BRITISH_LETTERS if british else _LETTERS
    words = spoken.split(" ")
    bare = [word.strip(",.?!;:") for word in words]
    single = [len(word) == 1 and word in names for word in bare]
    named = []
    for at, (word, letter) in enumerate(zip(words, bare, strict=True)):
        beside = (at > 0 and single[at - 1]) or (at + 1 < len(words) and single[at + 1])
        if single[at] and (beside or letter not in "ai"):
            word = word.replace(letter, f"[{letter}](/{names[letter]}/)", 1)
        named.append(word)
    return " ".join(named)


@dataclass(frozen=True, slots=True)
class PhonemeText:
    """The words of a text, its phonemes, and their ids with a pause (0) at both ends."""

    words: list[str]
    phonemes: list[str]
    ids: list[int]


class Phonemizer:
    """Converts text in its spoken form to phonemes, American or British. Not thread-safe: use processes."""

    def __init__(self, folder: Path, *, british: bool = False) -> None:
        """`folder`: of `hibari.unpack` or `hibari.unpacked`."""
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
        from hibari.g2p import G2P

        self._convert, self._british = G2P(british=british), british
        vocabulary = (folder / "hibari" / "assets" / "vocab.json").read_text("utf-8")
        self._ids: dict[str, int] = json.loads(vocabulary)

    def read(self, spoken: str) -> PhonemeText:
        """The phonemes of a text. Raises ValueError if words have no phonemes, or common ones."""
        words, phonemes = spoken.split(), self._convert(with_letter_names(spoken, british=self._british))
        if len(words) != len(phonemes.split()):
            raise ValueError(f"{spoken!r} has other words than {phonemes!r}")
        known = [character for character in phonemes if character in self._ids]
        return PhonemeText(words, known, [0, *(self._ids[character] for character in known), 0])


def timed(
    tokens: Sequence[str], ends_s: NDArray[np.float64], words: Sequence[str]
) -> tuple[list[TimedPhone], list[TimedWord]]:
    """Phones and words with their times, from phonemes and their ends, with those of the pauses before and after them.

    A modifier belongs to the phone after it; a blank or a mark of length to the one before. Raises ValueError if a word
    has no phones.
    """
    phones = [TimedPhone(PAUSE, float(ends_s[0]))]
    found: list[TimedWord] = []
    begin_s: float | None = None  # of the present word
    end_s: float | None = None  # of its last phone
    for token, token_begin_s, token_end_s in zip((*tokens, " "), ends_s[:-1], ends_s[1:], strict=True):
        if token == " ":
            if begin_s is not None and end_s is not None and len(found) < len(words):
                text = re.sub(r"[^a-z']", "", words[len(found)].lower())
                found.append(TimedWord(text, begin_s, end_s))
            begin_s = end_s = None
            phones[-1] = TimedPhone(phones[-1].name, float(token_end_s))
        elif token in _PAUSES:
            phones.append(TimedPhone(PAUSE, float(token_end_s)))
        elif token == _LENGTH and end_s is not None:
            end_s = float(token_end_s)
            phones[-1] = TimedPhone(phones[-1].name, end_s)
        else:
            begin_s = float(token_begin_s) if begin_s is None else begin_s
            if token in _PHONES:
                end_s = float(token_end_s)
                phones.append(TimedPhone(_PHONES[token], end_s))
    if len(found) != len(words):
        raise ValueError(f"{len(found)} of {len(words)} words have phones")
    return phones, found
