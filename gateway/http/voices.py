"""`POST /v1/voices` and `DELETE /v1/voices/{name}`: cloned voices, made and removed by clients with that right."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.multipart import MultipartReader
from voxgate.pipeline.cloning.creation import VoiceDraft
from voxgate.pipeline.cloning.library import VoiceLibrary
from voxgate.pipeline.cloning.service import RETRY_AFTER_MS
from voxgate.pipeline.errors import (
    AtCapacity,
    AudioTooLarge,
    BadMessage,
    UnknownVoice,
    UnsupportedOption,
    VoxgateError,
)
from voxgate.pipeline.interface import VoiceOwnership

from ..access.auth import QUERY_CREDENTIALS
from ..access.caller_share import CallerShare
from ..errors import QUOTED_CHARACTERS, Limit
from ..observability.events import Observer
from ..protocols.reply import error_reply, json_reply
from .application import GRANT, to_response
from .forms import named_parts, read_limited, read_text

VOICES_PATH = "/v1/voices"
RECEIVE_S = 60.0
"""Seconds in which a recording must arrive."""
MAX_FIELD_BYTES = 8192
_FIELDS = ("name", "text", "language", "description", "shared")
_STATUS = {UnknownVoice.code: HTTPStatus.NOT_FOUND, UnsupportedOption.code: HTTPStatus.CONFLICT}


@dataclass(slots=True)
class _Upload:
    recording: bytearray = field(default_factory=bytearray)
    fields: dict[str, list[str]] = field(default_factory=dict)

    def draft(self) -> VoiceDraft:
        """Raises BadMessage."""
        for name, values in self.fields.items():
            if name not in _FIELDS:
                raise BadMessage(f"unknown field {name!r}; fields are audio, {', '.join(_FIELDS)}", param=name)
            if len(values) > 1 and name != "language":
                raise BadMessage(f"{name} is given twice", param=name)
        if not self.recording:
            raise BadMessage("the recording is missing: send it as the body, or as the part 'audio'", param="audio")
        name, text, description = (self.fields.get(key, [""])[0] for key in ("name", "text", "description"))
        if not name:
            raise BadMessage("the voice's name is missing", param="name")
        return VoiceDraft(name, text or None, tuple(self.fields.get("language", ())), description)

    def ownership(self, key: str | None) -> VoiceOwnership:
        """Whose the voice will be, if `key` uploads it. Raises BadMessage."""
        shared = self.fields.get("shared", ["false"])[0]
        if shared not in ("true", "false"):
            raise BadMessage(f"shared must be true or false, got {shared[:100]!r}", param="shared")
        return VoiceOwnership(key or "", shared == "true")


class _UploadQueue:
    """The places of the cloning queue, of which a caller gets its share while others are present."""

    def __init__(self, library: VoiceLibrary, caller_share: float, observer: Observer) -> None:
        self._library, self._share, self._observer = library, CallerShare(caller_share), observer

    @contextlib.contextmanager
    def place(self, caller: str) -> Iterator[None]:
        """Holds a place of `caller` during the block. Raises AtCapacity, UnsupportedOption."""
        cloning, now_s = self._library.cloning_service(), asyncio.get_running_loop().time()
        try:
            if self._share.held(caller) >= self._share.limit(caller, cloning.places, now_s):
                message = "other callers are making voices; try again later"
                raise AtCapacity(message, retry_after_ms=RETRY_AFTER_MS, reached=Limit.UPLOADS)
            with cloning.queue_slot():
                self._share.acquire(caller)
                try:
                    yield
                finally:
                    self._share.release(caller)
        except AtCapacity as error:
            self._share.refuse(caller, now_s)
            self._observer.handshake_refused(error.code, error.reached)
            raise


def voice_routes(library: VoiceLibrary, caller_share: float, observer: Observer) -> list[web.RouteDef]:
    """Routes that require the right to manage voices. `caller_share`: share of the queue that one caller may hold."""
    queue = _UploadQueue(library, caller_share, observer)

    async def add(request: web.Request) -> web.Response:
        try:
            with queue.place(request[GRANT].caller.name):
                upload = await _receive(request, library.cloning_service().max_bytes)
                draft, ownership = upload.draft(), upload.ownership(request[GRANT].key)
                stored = await library.add(draft, upload.recording, ownership)
        except VoxgateError as error:
            return to_response(error_reply(error, _STATUS))
        document = {
            "name": stored.name,
            "in_context": stored.voice.in_context,
            "languages": stored.voice.languages,
            "description": stored.voice.description,
            "shared": stored.voice.ownership.shared,
        }
        location = {"Location": f"{VOICES_PATH}/{stored.name}"}
        return to_response(json_reply(HTTPStatus.CREATED, document, location))

    async def remove(request: web.Request) -> web.Response:
        try:
            await library.remove(request.match_info["name"], request[GRANT].key)
        except VoxgateError as error:
            return to_response(error_reply(error, _STATUS))
        return web.Response(status=HTTPStatus.NO_CONTENT)

    return [web.post(VOICES_PATH, add), web.delete(VOICES_PATH + "/{name}", remove)]


async def _receive(request: web.Request, max_bytes: int) -> _Upload:
    """Receives the whole upload. Raises AudioTooLarge, BadMessage."""
    upload = _Upload()
    for name, value in request.query.items():
        if name not in QUERY_CREDENTIALS:
            upload.fields.setdefault(name, []).append(value)
    if request.content_length is not None and request.content_length > max_bytes + len(_FIELDS) * MAX_FIELD_BYTES:
        raise AudioTooLarge(f"a recording must not exceed {max_bytes} bytes", param="audio")
    try:
        async with asyncio.timeout(RECEIVE_S):
            if request.content_type.startswith("multipart/"):
                await _receive_parts(await request.multipart(), upload, max_bytes)
            else:
                upload.recording = await _read_recording(request.content.iter_any(), max_bytes)
    except TimeoutError:
        raise BadMessage(f"the recording must arrive within {RECEIVE_S:g} s") from None
    except (ValueError, HttpProcessingError) as error:
        reason = str(error)[:QUOTED_CHARACTERS]
        raise BadMessage(f"the body is not a multipart form: {reason}") from error
    return upload


async def _receive_parts(form: MultipartReader, upload: _Upload, max_bytes: int) -> None:
    async for name, chunks in named_parts(form):
        if name == "audio":
            if upload.recording:
                raise BadMessage("audio is given twice", param="audio")
            upload.recording = await _read_recording(chunks, max_bytes)
        else:
            upload.fields.setdefault(name, []).append(await read_text(name, chunks, MAX_FIELD_BYTES))


async def _read_recording(chunks: AsyncIterator[bytes], max_bytes: int) -> bytearray:
    def too_large() -> AudioTooLarge:
        return AudioTooLarge(f"a recording must not exceed {max_bytes} bytes", param="audio")

    return await read_limited(chunks, max_bytes, too_large)
