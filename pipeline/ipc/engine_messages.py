"""What the speech process and a process that shares its engine tell each other of slots and generations.

Frames and sound do not go this way: the engine sends each process its frames, and the codec decodes for all.
"""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Tagged by its name."""


class Attach(Message, frozen=True):
    """Speech process: the engine runs, and this is the way in. Comes again after each start of it.

    `owner`: the process's number, `last_epoch` the last that a generation of its had. `tables`, `shape`: the slots'
    tables and the fields of their `TableShape`; `reports`: where it is to receive its frames; `wakeup_address`: where it rings
    when it wrote the tables; `codec`: where that takes jobs.
    """

    owner: int
    last_epoch: int
    tables: str
    shape: tuple[int, ...]
    reports: str
    wakeup_address: str
    codec: str
    codec_slots: int
    max_job_frames: int


class Attached(Message, frozen=True):
    """The answer to `Attach`, told again when it changes; `error`: why nobody can speak there, None when they can."""

    error: str | None


class Detach(Message, frozen=True):
    """Speech process: the engine is gone, and every utterance in it."""

    reason: str


class SubmitGeneration(Message, frozen=True):
    """Run a generation in a slot that was lent, its tables written."""

    slot: int
    epoch: int
    prompt_len: int


class GenerationEnded(Message, frozen=True):
    """Speech process: the engine ended a generation after so many steps; None when it was lost with the engine."""

    epoch: int
    steps: int | None


class AbortGeneration(Message, frozen=True):
    """Abort a generation; the engine itself then reports that its slot is free."""

    slot: int
    epoch: int
