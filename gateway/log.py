"""Log records as lines of text or of JSON, each with the fields it was given: the ids above all."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

from .log_lines import LinesHandler

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
    lines = LinesHandler(_STDERR)
    lines.setFormatter(_JsonFormatter() if style == "json" else _TextFormatter())
    root = logging.getLogger()
    root.handlers = [lines]
    root.setLevel(level.upper())
    # Below that it tells of every HTTP request and every socket.
    logging.getLogger("websockets").setLevel(max(root.level, logging.WARNING))
