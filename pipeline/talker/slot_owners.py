"""What slots, their owners and the engine expect of each other, and the delivery of reports to owners.

A slot's owner is a `Generation` of this process or, in the speech process, a `TalkerSlotLease` of another process. Its
engine is the `TalkerEngine`, or the `RemoteTalkerEngine` of a process that attached to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.pcm import Pcm

from ..ipc.records import HEADER, RecordFlag, unpack_pcm, unpack_records

_ENGINE_FLAGS = RecordFlag.STEP | RecordFlag.HEARTBEAT | RecordFlag.PREFILL
"""Records that are about the engine, not about a slot."""


class SlotOwner(Protocol):
    """Owns a slot until `SlotEngine.free`."""

    slot: int

    @property
    def epoch(self) -> int:
        """Of the generation that runs in the slot."""

    def on_record(self, number: int, flags: int, codes: NDArray[np.int32]) -> None:
        """Takes a frame, int32 [groups], or the end of speech."""

    def on_audio(self, pcm: Pcm) -> None:
        """Takes the audio of a first frame that the engine decoded, float32 [samples]."""

    def on_released(self) -> None:
        """The engine confirms that no step touches the slot for this epoch any more."""

    def fail(self, error: Exception) -> None:
        """The engine is lost."""


class SlotEngine(Protocol):
    """The engine as owners of its slots see it."""

    def run(self, slot: int, epoch: int, prompt_len: int) -> asyncio.Task[int]:
        """Runs a generation whose tables are written; resolves to the number of its steps.

        The task raises EngineLost. Cancelling it aborts the generation.
        """

    def wake(self) -> None:
        """Has held generations looked at again: text or credit was added."""

    def request_release(self, owner: SlotOwner) -> None:
        """Has `on_released` called once no step can touch the slot for the owner's epoch any more."""

    def free(self, owner: SlotOwner) -> None:
        """Takes the slot back. Does nothing for an owner that no longer has it."""


Owner = TypeVar("Owner", bound=SlotOwner)


class SlotOwners(Generic[Owner]):
    """Owners by slot. `on_engine_record` gets two columns and the flags of each record about the engine itself."""

    def __init__(self, groups: int, on_engine_record: Callable[[int, int, int], None] | None = None) -> None:
        self._groups, self._on_engine_record = groups, on_engine_record
        self._owners: dict[int, Owner] = {}

    def __iter__(self) -> Iterator[Owner]:
        return iter(list(self._owners.values()))

    def __contains__(self, slot: int) -> bool:
        return slot in self._owners

    def add(self, owner: Owner) -> None:
        self._owners[owner.slot] = owner

    def remove(self, owner: SlotOwner) -> bool:
        """Whether the slot was the owner's; it has none now."""
        found = self._owners.get(owner.slot) is owner
        if found:
            del self._owners[owner.slot]
        return found

    def deliver(self, message: bytes) -> None:
        """Hands a report of the engine's to the owners that it concerns. Raises ValueError when it is malformed."""
        if (audio := unpack_pcm(message)) is not None:
            slot, epoch, pcm = audio
            if (owner := self._owner(slot, epoch)) is not None:
                owner.on_audio(pcm)
            return
        records = unpack_records(message, self._groups)
        for (slot, epoch, number, flags), codes in zip(records[:, :HEADER].tolist(), records[:, HEADER:], strict=True):
            if flags & _ENGINE_FLAGS:
                if self._on_engine_record is not None:
                    self._on_engine_record(slot, epoch, flags)
            elif (owner := self._owner(slot, epoch)) is not None:
                if flags & RecordFlag.RELEASED:
                    owner.on_released()
                else:
                    owner.on_record(number, flags, codes)

    def _owner(self, slot: int, epoch: int) -> Owner | None:
        # Records of the slot's previous owner may arrive late.
        owner = self._owners.get(slot)
        return owner if owner is not None and owner.epoch == epoch else None
