"""Messages between the speech process, which owns the engine, and a process that runs generations in leased slots.

Frames and audio take other ways: the engine sends each process its frames, and the codec decodes for all of them.
"""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Tagged by the class's name."""


class Attach(Message, frozen=True):
    """From the speech process, after each start of the engine: how to run generations in it.

    `owner`: number of the receiving process; `last_epoch`: the last of its epochs. `tables`: path of the slot tables;
    `shape`: the fields of their `TableShape`. `reports`: the address at which this process receives its frames.
    `wakeup_address`: of the engine's `WakeupQueue`. `codec`: the address at which the codec takes jobs, for up to
    `codec_slots` streams and `max_job_frames` frames per job.
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
    """The answer to `Attach`, sent again when it changes.

    `reports`: that of the attachment, which tells an engine that was lost meanwhile from the current one. `error`: why
    the engine cannot be used, None if it can.
    """

    reports: str
    error: str | None


class Detach(Message, frozen=True):
    """From the speech process: the engine is gone, with every generation in it."""

    reason: str


class SubmitGeneration(Message, frozen=True):
    """Run a generation in a leased slot, whose tables are written.

    `claimed`: it has claimed the row of a prefilled prompt that is reserved for the slot.
    """

    slot: int
    epoch: int
    prompt_len: int
    claimed: bool = False


class GenerationEnded(Message, frozen=True):
    """From the speech process: a generation ended after `steps` steps; None when it was lost with the engine."""

    epoch: int
    steps: int | None


class AbortGeneration(Message, frozen=True):
    """Abort a generation; the engine then reports that its slot is released."""

    slot: int
    epoch: int
