"""Log records as lines of text or JSON on standard error, written by a background thread.

The standard library's queue handler and listener keep the event loop from waiting for a slow or stopped reader: records
beyond the bound of the queue are counted, and the count is logged once something can be written again.
"""

from __future__ import annotations

import json
import logging
import math
import os
import queue
import re
import threading
import time
from collections.abc import Iterable, Iterator
from logging.handlers import QueueHandler, QueueListener
from typing import Any

_STANDARD_FIELDS = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})
"""Attributes of every record; all others were passed as `extra`."""
_VLLM_PREFIX = "vllm_"
"""Prefix of the attributes that vLLM adds to every record of its process."""

_STDERR = 2
QUEUE_LINES = 10_000
"""Capacity of the queue: about two megabytes of lines, or ten of records that are not formatted yet."""
WRITE_DELAY_S = 0.05
"""Time from a record to its write. Formatting and writing take the interpreter lock from the event loop, so lines are
batched; and an utterance's first records are written when its first audio has left."""
ATOMIC_WRITE_BYTES = 4096
"""A pipe keeps writes up to this size whole, also between processes (pipe(7))."""
FLUSH_TIMEOUT_S = 1.0
"""Maximum wait for the last lines at the end of the process."""


def configure(level: str, style: str) -> None:
    """Log records of `level` ("debug" …) and above to standard error; `style` is "text" or "json"."""
    handler = BoundedQueueHandler(QUEUE_LINES)
    handler.setFormatter(_JsonFormatter() if style == "json" else _TextFormatter())
    BatchWriter(handler, _STDERR).start()
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    # No line names the thread or the process, which each record would look up.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    # At lower levels it logs every HTTP request and every socket.
    logging.getLogger("websockets").setLevel(max(root.level, logging.WARNING))


_SECRETS = re.compile(
    r"(?<![\w-])vg_[\w-]{16,}"  # keys of `voxgate keys new`
    r"|(?<![\w-])eyJ[\w-]+\.[\w-]+\.[\w-]*"  # tokens
    r"|(?<=[?&]token=)[^\s&\"']+|(?<=[?&]authorization=)[^\s&\"']+"
    r"|(?i:(?<=bearer )|(?<=xi-api-key: ))[^\s\"',]{8,}"
)


def redact(text: str) -> str:
    """The text without API keys and tokens.

    The gateway logs none. This covers the messages of libraries, which quote requests that they cannot parse.
    """
    return _SECRETS.sub("***", text)


_PLAIN = (str, int, float, bool, type(None))
"""Types of values that cannot change until a record is formatted."""


class BoundedQueueHandler(QueueHandler):
    """Queues records without waiting or raising; counts those that find the queue full.

    The writer formats them. Those that refer to more than plain values, such as an exception with its frames, are
    formatted at once.
    """

    def __init__(self, capacity: int) -> None:
        self.lines: queue.Queue[Any] = queue.Queue(capacity)
        """Lines, and records to be formatted; None ends the writer."""
        super().__init__(self.lines)
        self.lost = 0
        """Records that were not written and not reported yet."""
        # Not the handler's lock: `logging.shutdown` holds that one while it waits in `flush` for the writer.
        self._lost_lock = threading.Lock()

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord | str:
        """Returns what is queued: the record if only its message has to be made now, otherwise its line."""
        traced = record.exc_info or record.exc_text or record.stack_info
        if traced or not all(isinstance(value, _PLAIN) for value in _extra_fields(record).values()):
            return self.format(record)
        record.msg, record.args = record.getMessage(), None
        return record

    def lines_of(self, items: Iterable[logging.LogRecord | str]) -> Iterator[str]:
        """Yields the lines of queued items; counts a record that cannot be formatted."""
        for item in items:
            try:
                yield item if isinstance(item, str) else self.format(item)
            except Exception:
                self.count_lost(1)

    def enqueue(self, record: logging.LogRecord | str) -> None:
        try:
            self.lines.put_nowait(record)
        except queue.Full:
            self.count_lost(1)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802, ARG002 - as overridden
        # The default prints to standard error, which may block.
        self.count_lost(1)

    def count_lost(self, records: int) -> None:
        """Add records that could not be written."""
        with self._lost_lock:
            self.lost += records

    def take_lost(self) -> int:
        """The number of lost records, which the caller reports."""
        with self._lost_lock:
            lost, self.lost = self.lost, 0
        return lost

    def flush(self) -> None:
        """Wait until all queued lines are written, at most `FLUSH_TIMEOUT_S`; `logging` calls it at exit."""
        with self.lines.all_tasks_done:
            self.lines.all_tasks_done.wait_for(lambda: not self.lines.unfinished_tasks, FLUSH_TIMEOUT_S)


class BatchWriter(QueueListener):
    """Writes the lines of a `BoundedQueueHandler` to a file descriptor, many per write."""

    def __init__(self, source: BoundedQueueHandler, descriptor: int) -> None:
        super().__init__(source.lines)
        self._source, self._descriptor = source, descriptor

    def handle(self, record: logging.LogRecord | str) -> None:
        """Write `record`, all lines queued behind it, and the number of lost records."""
        time.sleep(WRITE_DELAY_S)
        items = [record]
        try:
            while (following := self._source.lines.get_nowait()) is not None:
                items.append(following)
        except queue.Empty:
            pass
        else:  # None ends the listener, which has to find it itself
            self._source.lines.put_nowait(None)
            self._source.lines.task_done()
        lines = list(self._source.lines_of(items))
        unwritten = sum(count for count, text in _batches(lines) if not self._write(text))
        lost = self._source.take_lost()
        if lost and (unwritten or not self._write(self._source.format(_loss_report(lost)) + "\n")):
            unwritten += lost
        self._source.count_lost(unwritten)
        for _ in items[1:]:  # the listener itself reports the first as done
            self._source.lines.task_done()

    def _write(self, text: str) -> bool:
        # Not through `sys.stderr`: its lock would be held meanwhile, and the interpreter takes that lock at exit.
        data = text.encode(errors="backslashreplace")
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:  # full disk, closed pipe
            return False
        return True


def _batches(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Join lines into texts of at most `ATOMIC_WRITE_BYTES` (longer lines stand alone): number of lines, text."""
    batch: list[str] = []
    size = 0
    for line in lines:
        line_bytes = len(line.encode(errors="backslashreplace")) + 1
        if batch and size + line_bytes > ATOMIC_WRITE_BYTES:
            yield len(batch), "".join(batch)
            batch, size = [], 0
        batch.append(f"{line}\n")
        size += line_bytes
    yield len(batch), "".join(batch)


def _loss_report(lost: int) -> logging.LogRecord:
    message = "%d log records were lost: they could not be written in time"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, message, (lost,), None)


LINE_INTERVAL_S = 1.0
"""Least time between two lines of a `DefectLog`."""
TRACEBACK_INTERVAL_S = 60.0
"""Least time between two of its tracebacks."""


class DefectLog:
    """Logs unexpected exceptions, which a client that found their cause may repeat as often as it likes.

    The first of a minute has its traceback, the others one line; those within a second of a line are only counted.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._line_due_s = self._traceback_due_s = -math.inf
        self._omitted = 0

    def report(self, event: str, error: Exception, now_s: float) -> None:
        """Logs `error`, whose message may hold text of users and is left out."""
        if now_s < self._line_due_s:
            self._omitted += 1
            return
        with_traceback = now_s >= self._traceback_due_s
        self._line_due_s = now_s + LINE_INTERVAL_S
        if with_traceback:
            self._traceback_due_s = now_s + TRACEBACK_INTERVAL_S
        fields = {"error": type(error).__name__, "omitted": self._omitted or None}
        self._omitted = 0
        self._logger.error("%s", event, exc_info=error if with_traceback else None, extra=fields)


class _TextFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in _extra_fields(record).items())
        return super().format(record) + fields


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra_fields(record),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document, default=str)


def _extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(record).items()
        if value is not None and name not in _STANDARD_FIELDS and not name.startswith(_VLLM_PREFIX)
    }
