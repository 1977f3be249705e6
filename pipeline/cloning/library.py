"""The voices people made: kept in the store, offered by the model, and the two held together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from ..cloned_voice import ClonedVoice
from ..errors import BadVoice, CheckpointError, CloningFailed, UnknownVoice, UnsupportedOption, VoiceExists
from ..interface import VoiceInfo
from .creation import VoiceDraft
from .service import CloningService
from .store import StoredVoice, VoiceStore, validated_name

WATCH_S = 1.0

log = logging.getLogger(__name__)


class VoiceRegistry(Protocol):
    """What a model offers; `QwenSynthesizer` is one."""

    voices: Mapping[str, VoiceInfo]

    def add_voice(self, voice: ClonedVoice) -> None:
        """Offer a voice, in place of an earlier one of its name. Raises BadVoice."""

    def remove_voice(self, name: str) -> None:
        """Offer it no longer. Raises UnknownVoice."""


class VoiceLibrary:
    """Offers every stored voice that fits the model, makes new ones, and follows what others do to the folder.

    `space` tells the model's speaker vectors from another's (`speaker_space_id`), "" where it has no speaker encoder.
    `cloning` is None for a model that cannot listen. `announce` is awaited when a voice was made or removed here,
    before whoever asked for that is told. Belongs to one event loop.
    """

    def __init__(
        self,
        store: VoiceStore,
        catalog: VoiceRegistry,
        space: str,
        cloning: CloningService | None,
        announce: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._store, self._catalog, self._space, self._cloning = store, catalog, space, cloning
        self._announce = announce
        self._seen: dict[str, tuple[int, int, int]] = {}
        self._offered: dict[str, StoredVoice] = {}
        self._changing = asyncio.Lock()

    @property
    def offered(self) -> Mapping[str, StoredVoice]:
        """Stored voices on offer, by name."""
        return self._offered

    def cloning_service(self) -> CloningService:
        """Who makes voices of recordings. Raises UnsupportedOption for a model that has no encoders."""
        if self._cloning is None:
            raise UnsupportedOption("this model cannot make voices of recordings; Base models can")
        return self._cloning

    async def refresh(self) -> None:
        """Offer what is in the folder now, and nothing that is not. Broken and foreign voices are warned of, once."""
        async with self._changing:
            await self._refresh()

    async def watch(self, interval_s: float = WATCH_S) -> None:
        """Refresh for ever: voices come and go from the command line too."""
        while True:
            await asyncio.sleep(interval_s)
            try:
                await self.refresh()
            except OSError as error:
                log.warning("the voices in %s cannot be read: %s", self._store.folder, error)

    async def add(self, draft: VoiceDraft, recording: bytes) -> StoredVoice:
        """Make a voice, keep it, and offer it; call it inside `cloning_service().place()`.

        Raises UnsupportedOption, BadVoice, VoiceExists, TooManyVoices, UnusableAudio, CloningFailed; nothing is kept
        then.
        """
        cloning = self.cloning_service()
        draft = draft.checked()
        self._check_free(draft.name)
        try:
            stored = await cloning.clone(draft, recording)
        except CheckpointError as error:
            log.error("no voice can be made: %s", error.message)
            raise CloningFailed("this model's encoders cannot be used; the gateway's log says why") from error
        async with self._changing:
            # It may have been taken meanwhile.
            self._check_free(draft.name)
            self._catalog.add_voice(stored.voice)
            try:
                await asyncio.to_thread(self._store.add, stored)
            except BaseException as error:
                self._catalog.remove_voice(draft.name)
                if isinstance(error, OSError):
                    raise CloningFailed(f"the voice could not be written: {error.strerror}") from error
                raise
            await self._refresh()
        log.info("voice added", extra={"voice": draft.name})
        if self._announce is not None:
            await self._announce()
        return stored

    async def remove(self, name: str) -> None:
        """Forget a voice; who speaks with it goes on. Raises UnknownVoice, also for the model's own voices."""
        name = validated_name(name)
        async with self._changing:
            try:
                await asyncio.to_thread(self._store.remove, name)
            except UnknownVoice:
                raise UnknownVoice(f"no voice {name!r} was made here", param="name") from None
            except OSError as error:
                raise CloningFailed(f"the voice could not be removed: {error.strerror}") from error
            await self._refresh()
        log.info("voice removed", extra={"voice": name})
        if self._announce is not None:
            await self._announce()

    def _check_free(self, name: str) -> None:
        if name in self._catalog.voices:
            raise VoiceExists(f"there is a voice {name!r} already", param="name")

    async def _refresh(self) -> None:
        versions = await asyncio.to_thread(self._store.versions)
        changed = [name for name, version in versions.items() if self._seen.get(name) != version]
        found = await asyncio.to_thread(self._store.load_all, changed) if changed else {}
        gone = [name for name in self._offered if name not in versions or (name in changed and name not in found)]
        self._seen = versions
        for name in gone:
            self._withdraw(name)
        for name, stored in found.items():
            self._offer(name, stored)

    def _offer(self, name: str, stored: StoredVoice) -> None:
        try:
            if stored.origin.space and self._space and stored.origin.space != self._space:
                made_with = stored.origin.checkpoint or "another model"
                raise BadVoice(f"it was made with {made_with}, whose speaker encoder is not this model's")
            self._catalog.add_voice(stored.voice)
        except BadVoice as error:
            log.warning("the voice %s is not offered: %s", name, error)
            if name in self._offered:
                self._withdraw(name)
        else:
            self._offered[name] = stored

    def _withdraw(self, name: str) -> None:
        del self._offered[name]
        try:
            self._catalog.remove_voice(name)
        except UnknownVoice:
            log.warning("the voice %s was withdrawn twice", name)
