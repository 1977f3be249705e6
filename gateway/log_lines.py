"""Lines to a file that may stand still, as a pipe does whose reader stopped: nobody ever waits for it."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator

MOST_WAITING = 10_000
"""Some two megabytes."""
PAUSE_S = 0.05
"""Between writes: each takes the interpreter from the event loop for a moment."""
WHOLE_BYTES = 4096
"""A pipe keeps writes up to this whole, also where several processes write to it (pipe(7))."""
LAST_S = 1.0
"""How long the end of the process waits for the last of them."""


class LinesHandler(logging.Handler):
    """A thread of its own writes to `descriptor`. Records that nobody took, or that too many wait before, are counted.

    How many they were is told once something can be written again.
    """

    def __init__(self, descriptor: int, most: int = MOST_WAITING) -> None:
        super().__init__()
        self._descriptor, self._most = descriptor, most
        self._waiting: list[str] = []
        self._lost = 0
        self._writing = False
        self._turn = threading.Condition()
        threading.Thread(target=self._write, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        with self._turn:
            if len(self._waiting) < self._most:
                self._waiting.append(line)
                self._turn.notify_all()
            else:
                self._lost += 1

    def flush(self) -> None:
        """Wait until all is written; not for long."""
        with self._turn:
            self._turn.wait_for(lambda: not self._waiting and not self._writing, LAST_S)

    def _write(self) -> None:
        while True:
            lines, lost = self._take()
            missed = sum(count for count, text in _joined(lines) if not self._put(text))
            if lost and not self._put(self.format(_told(lost)) + "\n"):
                missed += lost
            with self._turn:
                self._lost += missed
                self._writing = False
                self._turn.notify_all()
            time.sleep(PAUSE_S)

    def _take(self) -> tuple[list[str], int]:
        """All that waits, once something does, and how many were lost before."""
        with self._turn:
            self._turn.wait_for(lambda: self._waiting)
            self._writing = True
            lines, self._waiting = self._waiting, []
            lost, self._lost = self._lost, 0
            return lines, lost

    def _put(self, text: str) -> bool:
        # Not by way of `sys.stderr`: it would be locked meanwhile, and the interpreter wants it at its end.
        data = text.encode(errors="backslashreplace")
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:  # a full disk, a pipe that was closed
            return False
        return True


def _joined(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Lines in texts of up to `WHOLE_BYTES`, as far as they go: how many each has, and the text."""
    some: list[str] = []
    size = 0
    for line in lines:
        line_bytes = len(line.encode(errors="backslashreplace")) + 1
        if some and size + line_bytes > WHOLE_BYTES:
            yield len(some), "".join(some)
            some, size = [], 0
        some.append(f"{line}\n")
        size += line_bytes
    yield len(some), "".join(some)


def _told(lost: int) -> logging.LogRecord:
    words = "%d log records were lost: they could not be written in time"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, words, (lost,), None)
