"""Words on the terminal, each when it is played."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TextIO

from voxgate.client import Word


class Captions:
    """Prints each word of the text when it is played, with the white space and punctuation that follow it."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._text = ""
        self._utterance_start = 0
        self._printed = 0
        self._timers: list[asyncio.TimerHandle] = []

    def begin_utterance(self) -> None:
        """What follows is the text of another utterance, in which its words are counted."""
        self._utterance_start = len(self._text)

    def add_text(self, fragment: str) -> None:
        self._text += fragment

    def schedule(self, words: Sequence[Word], played_ms: int) -> None:
        """Prints each word when the player, now at `played_ms` of the utterance, reaches it."""
        loop = asyncio.get_running_loop()
        for word in words:
            delay_s = max(0, word.start_ms - played_ms) / 1000
            self._timers.append(loop.call_later(delay_s, self._print_until, self._utterance_start + word.end))

    def finish(self, *, played_all: bool) -> None:
        """Ends the line. Words still scheduled are printed only where everything was played."""
        if played_all and self._timers:
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
