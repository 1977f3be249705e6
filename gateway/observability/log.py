"""Log records as lines of text or of JSON, each with the fields it was given: the ids above all."""
# TODO-DOC Lines to a file that may stand still, as a pipe does whose reader stopped: nobody ever waits for it.

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

_OWN = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})
"""What every record has; anything else was given as `extra`."""
_FOREIGN = "vllm_"
"""vLLM marks every record of the process with names of its own."""


class _TextFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        return super().format(record) + fields


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document, default=str)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(record).items()
        if value is not None and name not in _OWN and not name.startswith(_FOREIGN)
    }


_STDERR = 2


def configure(level: str, style: str) -> None:
    """Send records of `level` ("debug" …) and above to stderr; `style` is "text" or "json"."""
    lines = NonBlockingHandler(_STDERR)
    lines.setFormatter(_JsonFormatter() if style == "json" else _TextFormatter())
    root = logging.getLogger()
    root.handlers = [lines]
    root.setLevel(level.upper())
    # Below that it tells of every HTTP request and every socket.
    logging.getLogger("websockets").setLevel(max(root.level, logging.WARNING))


MOST_WAITING = 10_000
"""Some two megabytes."""
PAUSE_S = 0.05
"""Between writes: each takes the interpreter from the event loop for a moment."""
WHOLE_BYTES = 4096
"""A pipe keeps writes up to this whole, also where several processes write to it (pipe(7))."""
LAST_S = 1.0
"""How long the end of the process waits for the last of them."""


class NonBlockingHandler(logging.Handler):
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
