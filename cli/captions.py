"""Words on the screen at the moment they are heard."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TextIO

from ..client import Word


class Captions:
    """Prints the text as sent, word by word; white space and punctuation come with the word before them."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._text = ""
        self._printed = 0
        self._timers: list[asyncio.TimerHandle] = []

    def add_text(self, fragment: str) -> None:
        self._text += fragment

    def schedule(self, words: Sequence[Word], played_ms: int) -> None:
        """Print each word when the player, now at `played_ms`, gets there."""
        loop = asyncio.get_running_loop()
        for word in words:
            delay_s = max(0, word.start_ms - played_ms) / 1000
            self._timers.append(loop.call_later(delay_s, self._print_until, word.end))

    def finish(self, *, heard_all: bool) -> None:
        """No more words come; those still waiting are printed only when they were heard."""
        if heard_all and self._timers:
            self._print_until(len(self._text))
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if self._printed:
            self._out.write("\n")
            self._out.flush()
            self._printed = 0

    def _print_until(self, end: int) -> None:
        while end < len(self._text) and not self._text[end].isalnum():
            end += 1
        if end > self._printed:
            self._out.write(self._text[self._printed : end].replace("\n", " "))
            self._out.flush()
            self._printed = end
