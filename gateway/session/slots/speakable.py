"""Finds the first text of an utterance that has something to say, with which it asks for a talker slot."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

from voxgate.pipeline.interface import MarkupDialect
from voxgate.pipeline.text.markup.filter import MarkupFilter
from voxgate.pipeline.text.markup.writer import Piece

EXAMINED_CHARACTERS = 256
"""Most characters of a fragment that are examined in one turn of the event loop; a longer one counts as speakable."""
_CONTROL_TOKEN = re.compile(r"<\|[^<>|]*\|>")
"""What the pipeline replaces by a blank."""
_TAG = re.compile(r"<[^<>]{0,64}>")
_OPEN_TAG = re.compile(r"<[^<>]{0,64}\Z")
"""What later text may make a tag."""


class SpeakableText:
    """Judges text fragment by fragment, however it is cut: a letter or digit outside of markup is speakable.

    Other characters, such as punctuation alone, may or may not be: only the pipeline knows, which needs a slot to find
    out. They count when the text is flushed or ended, as a pause does.
    """

    def __init__(self, markup: Iterable[MarkupDialect] = ()) -> None:
        self._markup = tuple(markup)
        self._begun = False
        """Whether the filter has text."""
        self._open_tag = ""
        self._text: list[str] = []

    def push(self, fragment: str) -> bool:
        """Takes a fragment; returns whether it made the text speakable. Nothing follows what did."""
        if not self._begun and fragment[:1].isalnum():
            return True  # no markup begins with it, so most texts need no filter here
        self._begun = True
        text = _TAG.sub("", self._open_tag + self._plain(self._filter.push(fragment[:EXAMINED_CHARACTERS])))
        unfinished = _OPEN_TAG.search(text)
        self._open_tag = unfinished[0] if unfinished else ""
        speakable = any(map(str.isalnum, text[: len(text) - len(self._open_tag)]))
        return speakable or len(fragment) > EXAMINED_CHARACTERS

    @cached_property
    def _filter(self) -> MarkupFilter:
        return MarkupFilter(self._markup)

    def complete(self) -> bool:
        """Returns whether the text so far may be speakable if no more comes: it is more than blanks and control tokens.

        Forgets it otherwise.
        """
        self._plain(self._filter.flush())
        text = "".join(self._text)
        self._text = [] if (blank := not _CONTROL_TOKEN.sub("", text).strip()) else [text]
        return not blank or self._filter.pauses > 0

    def _plain(self, pieces: Iterable[Piece]) -> str:
        """Returns the text among what the filter has written, and keeps it."""
        plain = "".join(piece for piece in pieces if isinstance(piece, str))
        self._text.append(plain)
        return plain
