"""The voice library: keeps the stored voices and those that the model offers in agreement."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from ..cloned_voice import ClonedVoice
from ..errors import BadVoice, CheckpointError, CloningFailed, UnknownVoice, UnsupportedOption, VoiceExists
from ..interface import EVERY_KEY, VoiceInfo, VoiceOwnership
from .creation import VoiceDraft
from .service import CloningService
from .store import StoredVoice, VoiceStore, validated_name

WATCH_INTERVAL_S = 1.0
"""Time between two looks at the folder: the delay until a voice added by another process is offered."""

log = logging.getLogger(__name__)


class VoiceRegistry(Protocol):
    """The voices that a model offers; `QwenSynthesizer` implements it."""

    voices: Mapping[str, VoiceInfo]

    def add_voice(self, voice: ClonedVoice) -> None:
        """Offer a voice, replacing one of the same name. Raises BadVoice."""

    def remove_voice(self, name: str) -> None:
        """Stop offering a voice. Raises UnknownVoice."""


class VoiceLibrary:
    """Offers every stored voice that fits the model, makes new ones, and follows changes of the folder.

    `space_id` identifies the model's speaker vectors (`speaker_space_id`), "" if it has no speaker encoder. `cloning`
    is None for a model without encoders. `announce` is awaited after this library added or removed a voice, before the
    call returns. Belongs to one event loop.
    """

    def __init__(
        self,
        store: VoiceStore,
        registry: VoiceRegistry,
        space_id: str,
        cloning: CloningService | None,
        announce: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._store, self._registry, self._space_id, self._cloning = store, registry, space_id, cloning
        self._announce = announce
        self._versions: dict[str, tuple[int, int, int]] = {}
        """File versions at the last refresh, by name."""
        self._offered: dict[str, StoredVoice] = {}
        self._changing = asyncio.Lock()

    @property
    def offered(self) -> Mapping[str, StoredVoice]:
        """Stored voices on offer, by name."""
        return self._offered

    def cloning_service(self) -> CloningService:
        """The service that makes voices from recordings. Raises UnsupportedOption for a model without encoders."""
        if self._cloning is None:
            raise UnsupportedOption("this model cannot make voices from recordings; Base models can")
        return self._cloning

    async def refresh(self) -> None:
        """Offer exactly the usable voices in the folder. Logs each broken or unsuitable voice once."""
        async with self._changing:
            await self._refresh()

    async def watch(self, interval_s: float = WATCH_INTERVAL_S) -> None:
        """Refresh until cancelled, because other processes add and remove voices too."""
        while True:
            await asyncio.sleep(interval_s)
            try:
                await self.refresh()
            except OSError as error:
                log.warning("reading the voices in %s failed: %s", self._store.folder, error)

    async def add(
        self, draft: VoiceDraft, recording: bytes | bytearray, ownership: VoiceOwnership = EVERY_KEY
    ) -> StoredVoice:
        """Make a voice, store it, and offer it; call it inside `cloning_service().queue_slot()`.

        Raises UnsupportedOption, BadVoice, VoiceExists, TooManyVoices, UnusableAudio, CloningFailed. After an error or
        a cancellation before the voice was stored, nothing is kept.
        """
        cloning = self.cloning_service()
        draft = draft.validated()
        self._check_free(draft.name)
        try:
            # The process that reads the recording does not decide whose voice it is.
            stored = (await cloning.clone(draft, recording)).owned_by(ownership)
        except CheckpointError as error:
            # The message may name paths, which are not for clients.
            log.error("voice not made: %s", error.message)
            raise CloningFailed("this model's encoders cannot be used; see the gateway's log") from error
        async with self._changing:
            # Another upload may have taken the name in the meantime.
            self._check_free(draft.name)
            self._registry.add_voice(stored.voice)
            try:
                await asyncio.to_thread(self._store.add, stored)
            except BaseException as error:
                self._registry.remove_voice(draft.name)
                if isinstance(error, OSError):
                    raise CloningFailed(f"the voice could not be stored: {error.strerror}") from error
                raise
            await self._refresh()
        log.info("voice added", extra={"voice": draft.name})
        if self._announce is not None:
            await self._announce()
        return stored

    async def remove(self, name: str, key: str | None = None) -> None:
        """Remove a stored voice on behalf of `key`, None without keys; utterances in progress keep it.

        Raises UnknownVoice, also for the model's own voices and for those of other keys, and CloningFailed when the
        file cannot be removed.
        """
        name = validated_name(name)
        async with self._changing:
            try:
                await asyncio.to_thread(self._remove, name, key)
            except UnknownVoice:
                raise UnknownVoice(f"there is no stored voice {name!r}, or none of this key", param="name") from None
            except OSError as error:
                raise CloningFailed(f"the voice could not be removed: {error.strerror}") from error
            await self._refresh()
        log.info("voice removed", extra={"voice": name})
        if self._announce is not None:
            await self._announce()

    def _remove(self, name: str, key: str | None) -> None:
        """Raises UnknownVoice, OSError."""
        if key is not None:
            try:
                stored = self._store.load(name)
            except BadVoice as error:  # whose it is cannot be read
                raise UnknownVoice(error.message) from error
            if not stored.voice.ownership.removable_by(key):
                raise UnknownVoice("it belongs to another key")
        self._store.remove(name)

    def _check_free(self, name: str) -> None:
        if name in self._registry.voices:
            raise VoiceExists(f"a voice named {name!r} exists already", param="name")

    async def _refresh(self) -> None:
        versions = await asyncio.to_thread(self._store.versions)
        changed = [name for name, version in versions.items() if self._versions.get(name) != version]
        found = await asyncio.to_thread(self._store.load_all, changed) if changed else {}
        gone = [name for name in self._offered if name not in versions or (name in changed and name not in found)]
        self._versions = versions
        for name in gone:
            self._withdraw(name)
        for name, stored in found.items():
            self._offer(name, stored)

    def _offer(self, name: str, stored: StoredVoice) -> None:
        try:
            if stored.origin.space and self._space_id and stored.origin.space != self._space_id:
                made_with = stored.origin.checkpoint or "another model"
                raise BadVoice(f"it was made with {made_with}, whose speaker encoder differs from this model's")
            self._registry.add_voice(stored.voice)
        except BadVoice as error:
            log.warning("voice %s is not offered: %s", name, error)
            if name in self._offered:
                self._withdraw(name)
        else:
            self._offered[name] = stored

    def _withdraw(self, name: str) -> None:
        del self._offered[name]
        try:
            self._registry.remove_voice(name)
        except UnknownVoice:
            log.warning("voice %s was not registered when it was withdrawn", name)
