"""Messages between the speech process and its workers, in addition to `pipeline/ipc/engine_messages.py`."""

from __future__ import annotations

from voxgate.pipeline.ipc.engine_messages import (
    AbortGeneration,
    Attach,
    Attached,
    Detach,
    GenerationEnded,
    Message,
    SubmitGeneration,
)


class WorkerInit(Message, frozen=True):
    """Speech process, first message: the configuration of the worker.

    `settings` as JSON, with the paths of `FileCopies`; `folder` of the checkpoint; `owner` is the worker's number, from
    1; `port` to listen on; `shared_usage` is the path of the shared memory; `secret` signs tokens if the settings name
    no file.
    """

    settings: str
    folder: str
    owner: int
    port: int
    shared_usage: str
    secret: bytes


class Listening(Message, frozen=True):
    """Worker: it listens on the port."""


class Status(Message, frozen=True):
    """Speech process: the current state, sent on change. `retry_ms` is the wait after which admission is likely."""

    engine: str
    reason: str | None
    slots: int
    active: int
    queued: int
    retry_ms: int


class Join(Message, frozen=True):
    """Worker: an utterance of `caller` requests a slot. `limit` bounds the caller's active utterances.

    `resumes`: it had one and gave it up while it waited for text.
    """

    ticket: int
    caller: str
    limit: int | None
    resumes: bool = False


class Leave(Message, frozen=True):
    """Worker: an utterance releases its slot, which is unused, or its place in the queue."""

    ticket: int


class TicketMoved(Message, frozen=True):
    """Speech process: the position of an utterance in the queue, from 1."""

    ticket: int
    position: int
    eta_ms: int


class TicketGranted(Message, frozen=True):
    """Speech process: an utterance is admitted with these slots; None without an engine.

    `slots`: of talker and codec, and the row of a prefilled prompt (`LeasedSlots`).

    Sent again, with other slots, after a restart of the engine.
    """

    ticket: int
    slots: tuple[int, int, int | None] | None


class TicketRefused(Message, frozen=True):
    """Speech process: an utterance is refused."""

    ticket: int
    code: str
    message: str
    retry_after_ms: int | None
    reached: str | None


class Drain(Message, frozen=True):
    """Speech process: refuse new speech and end when current speech has ended, at the latest after `deadline_s`."""

    deadline_s: float


class Reload(Message, frozen=True):
    """Speech process: reload files of these kinds, "keys" and "certificate"."""

    kinds: tuple[str, ...]


class Ask(Message, frozen=True):
    """Either: a question, answered by `number`. The questions are in `Question`."""

    number: int
    what: str


class Answer(Message, frozen=True):
    """Either: the answer to an `Ask`."""

    number: int
    content: bytes


class Question:
    """Values of `Ask.what`."""

    HEARTBEAT = "heartbeat"
    """To a worker: a heartbeat."""
    COUNTS = "counts"
    """To a worker: its `WorkerMetrics`."""
    EXPOSITION = "exposition"
    """To the speech process: the metrics of all processes as text."""
    VOICES = "voices"
    """To either: reload the folder of voices; the speech process passes it on to all workers."""


ToWorker = (
    WorkerInit
    | Status
    | TicketMoved
    | TicketGranted
    | TicketRefused
    | Drain
    | Reload
    | Ask
    | Answer
    | Attach
    | Detach
    | GenerationEnded
)
FromWorker = Listening | Attached | Join | Leave | Ask | Answer | SubmitGeneration | AbortGeneration

URGENT = (Join, TicketGranted, SubmitGeneration)
"""What the first sample of an utterance waits for."""
