"""Lines to a file that may stand still, as a pipe does whose reader stopped: nobody ever waits for it."""

from __future__ import annotations

import logging
import os
import threading

MOST_WAITING = 10_000
"""Some two megabytes."""
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
            missed = sum(not self._put(line) for line in lines)
            if lost and not self._put(self.format(_told(lost))):
                missed += lost
            with self._turn:
                self._lost += missed

    def _take(self) -> tuple[list[str], int]:
        """All that waits, once something does, and how many were lost before."""
        with self._turn:
            self._writing = False
            self._turn.notify_all()
            self._turn.wait_for(lambda: self._waiting)
            self._writing = True
            lines, self._waiting = self._waiting, []
            lost, self._lost = self._lost, 0
            return lines, lost

    def _put(self, line: str) -> bool:
        # Not by way of `sys.stderr`: it would be locked meanwhile, and the interpreter wants it at its end.
        data = f"{line}\n".encode(errors="backslashreplace")
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:  # a full disk, a pipe that was closed
            return False
        return True


def _told(lost: int) -> logging.LogRecord:
    words = "%d log records were lost: they could not be written in time"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, words, (lost,), None)
