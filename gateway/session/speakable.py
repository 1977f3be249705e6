"""Finds the first text of an utterance that has something to say, with which it asks for a talker slot."""

from __future__ import annotations

import re

_CONTROL_TOKEN = re.compile(r"<\|[^<>|]*\|>")
"""What the pipeline replaces by a blank."""
_MARKUP = re.compile(r"<[^<>]{0,64}>")
_OPEN_MARKUP = re.compile(r"<[^<>]{0,64}\Z")
"""Markup that later text may close."""


class SpeakableText:
    """Judges text fragment by fragment, however it is cut: a letter or digit outside of markup is speakable.

    Other characters, such as punctuation alone, may or may not be: only the pipeline knows, which needs a slot to find
    out. They count when the text is flushed or ended.
    """

    def __init__(self) -> None:
        self._open_markup = ""
        self._text: list[str] = []

    def push(self, fragment: str) -> bool:
        """Takes a fragment; returns whether it made the text speakable."""
        self._text.append(fragment)
        text = _MARKUP.sub("", self._open_markup + fragment)
        unfinished = _OPEN_MARKUP.search(text)
        self._open_markup = unfinished[0] if unfinished else ""
        return any(map(str.isalnum, text[: len(text) - len(self._open_markup)]))

    def complete(self) -> bool:
        """Returns whether the text so far may be speakable if no more comes: it is more than blanks and control tokens.

        Forgets it otherwise.
        """
        text = "".join(self._text)
        self._text = [] if (blank := not _CONTROL_TOKEN.sub("", text).strip()) else [text]
        return not blank
