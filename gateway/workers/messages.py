"""What the speech process and its workers tell each other, besides what `pipeline/ipc/engine_messages.py` has."""

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
    """Speech process, first of all: who the worker is.

    `settings`: as JSON; `folder`: of the checkpoint; `owner`: its number, from 1; `port`: to listen on, beside others;
    `shared_usage`: path of the shared memory; `secret`: what tokens are signed with where the settings name no file.
    """

    settings: str
    folder: str
    owner: int
    port: int
    shared_usage: str
    secret: bytes


class Listening(Message, frozen=True):
    """Worker: it answers on the port."""


class Status(Message, frozen=True):
    """Speech process: how things are, told again when that changes. `retry_ms`: until somebody new may be let in."""

    engine: str
    reason: str | None
    slots: int
    active: int
    queued: int
    retry_ms: int


class Join(Message, frozen=True):
    """Worker: an utterance of `caller` wants a slot. `limit`: utterances that the caller may have under way."""

    ticket: int
    caller: str
    limit: int | None


class Leave(Message, frozen=True):
    """Worker: it needs its slot, or its place in the queue, no more; nothing of it is left in the slot."""

    ticket: int


class TicketMoved(Message, frozen=True):
    """Speech process: its place in the queue, from 1."""

    ticket: int
    position: int
    eta_ms: int


class TicketGranted(Message, frozen=True):
    """Speech process: it may speak, in these slots of the talker's and the codec's; none without an engine."""

    ticket: int
    place: tuple[int, int] | None


class TicketRefused(Message, frozen=True):
    """Speech process: it will not be let in."""

    ticket: int
    code: str
    message: str
    retry_after_ms: int | None


class Drain(Message, frozen=True):
    """Speech process: take nothing new, end when speech has ended, after `deadline_s` in any case."""

    deadline_s: float


class Reload(Message, frozen=True):
    """Speech process: read keys and certificate anew."""


class Ask(Message, frozen=True):
    """Either: answer me by `number`. What can be asked is in `Question`."""

    number: int
    what: str


class Answer(Message, frozen=True):
    """Either: to `Ask`."""

    number: int
    content: bytes


class Question:
    """What can be asked for, as `Ask.what`."""

    HEARTBEAT = "heartbeat"
    """Of a worker: a sign of life."""
    COUNTS = "counts"
    """Of a worker: its `WorkerMetrics`."""
    EXPOSITION = "exposition"
    """Of the speech process: everybody's metrics, as text."""
    VOICES = "voices"
    """Of either: offer what the folder of voices has now; of the speech process: have everybody do so."""


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
