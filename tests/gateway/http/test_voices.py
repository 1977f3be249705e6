"""Voices over HTTP: uploads in either form, limits, keys, removal, and a client that goes away."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from fakes.gateway.loopback import next_of
from fakes.gateway.packet_encoder import FakeEncoder
from fakes.pipeline.tone_synthesizer import ToneSynthesizer
from fakes.waiting import DEADLINE_S, until
from voxgate.gateway.access.keys import hash_key
from voxgate.gateway.server import Gateway
from voxgate.gateway.settings import Settings
from voxgate.pipeline.cloned_voice import ClonedVoice
from voxgate.pipeline.cloning.creation import VoiceDraft
from voxgate.pipeline.cloning.library import VoiceLibrary
from voxgate.pipeline.cloning.service import CloningService
from voxgate.pipeline.cloning.store import StoredVoice, VoiceStore
from voxgate.pipeline.errors import CloningFailed, SilentAudio, VoxgateError
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

PAGE = "https://voice.example"
MOST_BYTES = 100_000


class Listener(CloningService):
    """Hears nothing, but remembers what it was given; raises what it is told to."""

    def __init__(self) -> None:
        super().__init__(Path("nowhere"), "small", max_bytes=MOST_BYTES, max_duration_s=30.0, max_waiting=1)
        self.heard: list[tuple[VoiceDraft, bytes]] = []
        self.error: VoxgateError | None = None
        self.hold: asyncio.Event | None = None
        self.cancelled = asyncio.Event()

    async def clone(self, draft: VoiceDraft, recording: bytes) -> StoredVoice:
        self.heard.append((draft, recording))
        if self.error is not None:
            raise self.error
        try:
            if self.hold is not None:
                await self.hold.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        codes = None if draft.text is None else np.zeros((2, 16), int)
        voice = ClonedVoice(draft.name, np.ones(8, np.float32), draft.text, codes, draft.languages, draft.description)
        return StoredVoice(voice)


class Place:
    def __init__(
        self, client: aiohttp.ClientSession, listener: Listener, served: Gateway, library: VoiceLibrary | None
    ) -> None:
        self.client, self.listener, self.served, self._library = client, listener, served, library

    @property
    def library(self) -> VoiceLibrary:
        assert self._library is not None
        return self._library

    async def post(self, query: str = "name=Eve", **options: Any) -> tuple[int, dict[str, Any]]:
        options = {"data": b"sound"} | options
        async with self.client.post(f"/v1/voices?{query}", **options) as response:
            return response.status, json.loads(await response.read())

    async def refusals(self) -> int:
        """How many uploads the limit has refused, as the metrics say."""
        async with self.client.get("/metrics") as response:
            return int(float((await response.text()).partition('limits_reached_total{limit="uploads"} ')[2].split()[0]))

    async def delete(self, name: str, **options: Any) -> int:
        async with self.client.delete(f"/v1/voices/{name}", **options) as response:
            return response.status

    async def names(self, path: str = "/v1/voices", **options: Any) -> list[str]:
        async with self.client.get(path, **options) as response:
            return [voice["name"] for voice in (await response.json())["voices"]]


@contextlib.asynccontextmanager
async def serving(
    folder: Path, listens: bool = True, takes_uploads: bool = True, **settings: Any
) -> AsyncIterator[Place]:
    listener, synthesizer = Listener(), ToneSynthesizer()
    store = VoiceStore(folder, max_voices=2)
    library = VoiceLibrary(store, synthesizer, "", listener if listens else None) if takes_uploads else None
    served = Gateway(Settings(port=0, **settings), synthesizer, FakeEncoder, library=library)
    await served.open()
    await synthesizer.start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{served.port}") as client, asyncio.timeout(DEADLINE_S):
            yield Place(client, listener, served, library)
    finally:
        await served.close()


async def test_a_raw_body_with_a_query(tmp_path: Path) -> None:
    async with serving(tmp_path) as place:
        query = "name=Eve&language=german&language=english&description=A%20friend"
        status, document = await place.post(query, headers={"Content-Type": "audio/wav"})
        assert status == 201
        assert document == {
            "name": "eve",
            "in_context": False,
            "languages": ["german", "english"],
            "description": "A friend",
            "shared": False,
        }
        assert place.listener.heard == [(VoiceDraft("eve", None, ("german", "english"), "A friend"), b"sound")]
        assert await place.names() == ["ada", "bob", "eve"]


async def test_multipart_form_makes_a_voice(tmp_path: Path) -> None:
    async with serving(tmp_path) as place:
        form = aiohttp.FormData()
        form.add_field("name", "Eve")
        form.add_field("text", "Grüße!")
        form.add_field("audio", bytes(range(256)) * 300, filename="eve.mp3", content_type="audio/mpeg")
        status, document = await place.post("", data=form)
        assert (status, document["in_context"]) == (201, True)
        assert place.listener.heard == [(VoiceDraft("eve", "Grüße!"), bytes(range(256)) * 300)]


async def test_removed_voice_is_not_offered(tmp_path: Path) -> None:
    async with serving(tmp_path) as place:
        await place.post()
        assert await place.delete("eve") == 204
        assert await place.names() == ["ada", "bob"]
        assert await place.delete("eve") == 404
        assert await place.delete("ada") == 404  # the model's own
        assert await place.delete("..%2Feve") == 400


def form_of(*parts: tuple[str, bytes]) -> aiohttp.FormData:
    form = aiohttp.FormData()
    for name, value in parts:
        form.add_field(name, io.BytesIO(value))
    return form


@pytest.mark.parametrize(
    ("query", "options", "status", "error"),
    [
        ("", {}, 400, "bad_message"),
        ("name=eve", {"data": b""}, 400, "bad_message"),
        ("name=eve&name=max", {}, 400, "bad_message"),
        ("name=eve&volume=3", {}, 400, "bad_message"),
        ("name=eve&shared=maybe", {}, 400, "bad_message"),
        ("name=no/good", {}, 400, "bad_voice"),
        ("name=ada", {}, 409, "voice_exists"),
        ("name=eve", {"data": bytes(MOST_BYTES + 1)}, 413, "audio_too_large"),
        ("name=eve", {"data": form_of(("audio", bytes(MOST_BYTES + 1)))}, 413, "audio_too_large"),
        ("", {"data": form_of(("name", b"eve"))}, 400, "bad_message"),
        ("", {"data": form_of(("name", b"\xff"), ("audio", b"x"))}, 400, "bad_message"),
        ("", {"data": form_of(("name", b"n" * 9000), ("audio", b"x"))}, 400, "bad_message"),
        ("name=eve", {"data": form_of(("audio", b"x"), ("audio", b"y"))}, 400, "bad_message"),
        ("name=eve", {"data": form_of(*[("language", b"x")] * 21)}, 400, "bad_message"),
        ("name=eve", {"data": b"x", "headers": {"Content-Type": "multipart/form-data"}}, 400, "bad_message"),
        ("name=eve", {"headers": {"Content-Type": "multipart/form-data; boundary=y"}}, 400, "bad_message"),
    ],
)
async def test_unsupported_requests_are_refused(
    tmp_path: Path, query: str, options: Any, status: int, error: str
) -> None:
    async with serving(tmp_path) as place:
        answered, document = await place.post(query, **options)
        assert (answered, document["error"]) == (status, error), document
        assert place.listener.heard == []
        assert await place.names() == ["ada", "bob"]


FORM = (
    b'--b\r\nContent-Disposition: form-data; name="name"\r\nContent-Type: text/plain; charset=utf-8\r\n\r\neve\r\n'
    b'--b\r\nContent-Disposition: form-data; name="audio"; filename="a"\r\nContent-Length: 4\r\n\r\nAAAA\r\n--b--\r\n'
)
ODD = (b"--b", b"\r\n", b"\0", b"\xff", b'"', b"Content-Length: -1\r\n", b"name*=utf-8''%ff", b"a" * 9000)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the library, which the gateway silences too
async def test_malformed_forms_are_no_errors_of_the_gateway(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    forms = [FORM[:at] + odd + FORM[at:] for odd in ODD for at in range(0, len(FORM), 20)]
    forms += [FORM[:at] + FORM[at + 10 :] for at in range(0, len(FORM), 10)]
    async with serving(tmp_path) as place:
        for form in forms:
            place.listener.error = SilentAudio("nothing to hear")
            status, document = await place.post("", data=form, headers=headers)
            assert status == 400, form
            assert len(document["message"]) < 500
    assert not caplog.records


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield bytes(10_000)


async def test_a_body_of_unknown_length_ends_at_the_limit(tmp_path: Path) -> None:
    async with serving(tmp_path) as place:
        with contextlib.suppress(aiohttp.ClientError):  # the gateway need not read on to answer
            status, document = await place.post(data=endless())
            assert (status, document["error"]) == (413, "audio_too_large")
        assert place.listener.heard == []


@pytest.mark.parametrize(
    ("error", "status"), [(SilentAudio("nothing to hear"), 400), (CloningFailed("no voice was made"), 500)]
)
async def test_refused_recording_names_the_reason(tmp_path: Path, error: VoxgateError, status: int) -> None:
    async with serving(tmp_path) as place:
        place.listener.error = error
        answered, document = await place.post()
        assert (answered, document["error"], document["message"]) == (status, error.code, error.message)


async def test_table_holds_many_callers(tmp_path: Path) -> None:
    async with serving(tmp_path) as place:
        for name in ("a", "b"):
            assert (await place.post(f"name={name}"))[0] == 201
        status, document = await place.post("name=c")
        assert (status, document["error"]) == (409, "too_many_voices")


async def test_upload_queue_is_bounded_and_a_disconnect_leaves_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as place:
        place.listener.hold = asyncio.Event()
        waiting = [asyncio.create_task(place.post(f"name={name}")) for name in ("a", "b")]
        while len(place.listener.heard) < 2:
            await asyncio.sleep(0.001)
        status, document = await place.post("name=c")
        assert (status, document["error"], document["reached"]) == (503, "at_capacity", "uploads")
        assert document["retry_after_ms"] > 0
        assert await place.refusals() == 1
        waiting[0].cancel()
        await place.listener.cancelled.wait()
        place.listener.hold.set()
        assert (await waiting[1])[0] == 201
        assert await place.names() == ["ada", "bob", "b"]


async def test_a_caller_gets_its_share_of_the_upload_queue_while_others_want_some(tmp_path: Path) -> None:
    keys = tuple(f"{name}={hash_key(name)}:voices" for name in ("ada", "bob"))
    ada, bob = {"Authorization": "Bearer ada"}, {"Authorization": "Bearer bob"}
    async with serving(tmp_path, keys=keys) as place:
        place.listener.hold = asyncio.Event()
        waiting = [asyncio.create_task(place.post(f"name={name}", headers=ada)) for name in ("a", "b")]
        await until(lambda: len(place.listener.heard) == 2)
        assert (await place.post("name=c", headers=bob))[0] == 503, "a caller that is alone holds every place"
        waiting[0].cancel()
        await place.listener.cancelled.wait()
        status, document = await place.post("name=d", headers=ada)
        assert (status, document["error"], document["reached"]) == (503, "at_capacity", "uploads")
        assert document["retry_after_ms"] > 0
        place.listener.hold.set()
        assert (await place.post("name=e", headers=bob))[0] == 201
        assert (await waiting[1])[0] == 201


async def test_voices_need_a_key_with_the_right_where_keys_are_configured(tmp_path: Path) -> None:
    key = {"Authorization": "Bearer k"}
    keys = (f"ada={hash_key('k')}:speak+voices", f"bob={hash_key('b')}")
    async with serving(tmp_path, keys=keys, allowed_origins=(PAGE,)) as place:
        assert (await place.post())[0] == 401
        assert await place.delete("eve") == 401
        async with place.client.post("/v1/tokens", headers=key) as response:
            token = (await response.json())["token"]
        assert (await place.post(f"name=eve&token={token}"))[0] == 403
        assert (await place.post(headers=key | {"Origin": "https://elsewhere.example"}))[0] == 403
        assert (await place.post(headers={"Authorization": "Bearer b"}))[0] == 403
        assert (await place.post("name=eve&token=k"))[0] == 401
        assert (await place.post("name=eve", headers=key))[0] == 201
        assert await place.delete("eve", headers={"Authorization": f"Bearer {token}"}) == 403
        assert await place.delete("eve", headers={"Authorization": "Bearer b"}) == 403
        assert await place.delete("eve", headers=key) == 204


OWNERS = {name: {"headers": {"Authorization": f"Bearer {name}"}} for name in ("ada", "eve", "max")}
OWNER_KEYS = (*(f"{name}={hash_key(name)}:speak+voices" for name in ("ada", "eve")), f"max={hash_key('max')}")


async def test_voice_belongs_to_the_key_that_made_it(tmp_path: Path) -> None:
    async with serving(tmp_path, keys=OWNER_KEYS) as place:
        assert (await place.post("name=own", **OWNERS["ada"]))[0] == 201
        for path in ("/v1/voices", "/v2/voices"):
            assert await place.names(path, **OWNERS["ada"]) == ["ada", "bob", "own"]
            assert await place.names(path, **OWNERS["eve"]) == ["ada", "bob"]
        assert await place.delete("own", **OWNERS["eve"]) == 404
        status, document = await place.post("name=own", **OWNERS["eve"])
        assert (status, document["error"]) == (409, "voice_exists")
        for method, url, body in (
            ("GET", "/v1/voices/own", None),
            ("POST", "/v1/audio/speech", {"input": "Hello.", "voice": "own", "response_format": "pcm"}),
            ("POST", "/v1/text-to-speech/own?output_format=pcm_24000", {"text": "Hello."}),
            ("POST", "/v1/speak?model=own&encoding=linear16&sample_rate=24000", {"text": "Hello."}),
        ):
            answers = {}
            for name, options in OWNERS.items():
                async with place.client.request(method, url, json=body, **options) as answer:
                    answers[name] = answer.status
                    assert name == "ada" or b"bob, own" not in await answer.read()
            assert answers["ada"] == 200, url
            assert answers["eve"] == answers["max"] != 200, url
        assert await place.delete("own", **OWNERS["ada"]) == 204


async def test_socket_path_names_no_voice_of_another_key(tmp_path: Path) -> None:
    async with serving(tmp_path, keys=OWNER_KEYS) as place:
        assert (await place.post("name=own", **OWNERS["ada"]))[0] == 201
        url = f"ws://127.0.0.1:{place.served.port}/v1/text-to-speech/own/stream-input?output_format=pcm_24000"
        async with connect(url, additional_headers=OWNERS["ada"]["headers"]):
            pass
        with pytest.raises(InvalidStatus) as refused:
            await connect(url, additional_headers=OWNERS["max"]["headers"])
        assert refused.value.response.status_code == 404


async def test_start_names_no_voice_of_another_key(tmp_path: Path) -> None:
    async with serving(tmp_path, keys=OWNER_KEYS) as place:
        assert (await place.post("name=own", **OWNERS["ada"]))[0] == 201
        for name, answered in (("ada", "started"), ("max", "error")):
            url = f"ws://127.0.0.1:{place.served.port}/v1/speech"
            async with connect(url, additional_headers=OWNERS[name]["headers"]) as socket:
                await socket.send(json.dumps({"type": "start", "utterance": "u", "voice": "own"}))
                await socket.send(json.dumps({"type": "text", "utterance": "u", "text": "Hello."}))
                message = await next_of(socket, answered)
        assert message["code"] == "unknown_voice"
        assert message["message"].endswith("available voices: ada, bob")


async def test_shared_voice_is_used_by_others_and_removed_by_its_owner(tmp_path: Path) -> None:
    async with serving(tmp_path, keys=OWNER_KEYS) as place:
        status, document = await place.post("name=own&shared=true", **OWNERS["ada"])
        assert (status, document["shared"]) == (201, True)
        for name in OWNERS:
            async with place.client.get("/v1/voices/own", **OWNERS[name]) as answer:
                voice = await answer.json()
            assert (voice["is_owner"], voice["shared"]) == (name == "ada", True)
        assert await place.delete("own", **OWNERS["eve"]) == 404
        assert await place.delete("own", **OWNERS["ada"]) == 204


async def test_voice_without_an_owner_belongs_to_every_key(tmp_path: Path) -> None:
    async with serving(tmp_path) as place:
        assert (await place.post("name=old"))[0] == 201
    async with serving(tmp_path, keys=OWNER_KEYS) as place:
        await place.library.refresh()
        for options in OWNERS.values():
            assert "old" in await place.names(**options)
        assert await place.delete("old", **OWNERS["eve"]) == 204


async def test_every_voice_is_offered_without_keys(tmp_path: Path) -> None:
    async with serving(tmp_path, keys=OWNER_KEYS) as place:
        assert (await place.post("name=own", **OWNERS["ada"]))[0] == 201
    async with serving(tmp_path) as place:
        await place.library.refresh()
        assert "own" in await place.names()
        assert await place.delete("own") == 204


async def test_unreadable_voice_is_removed_by_no_key(tmp_path: Path) -> None:
    (tmp_path / "broken.safetensors").write_bytes(b"broken")
    async with serving(tmp_path, keys=OWNER_KEYS) as place:
        assert await place.delete("broken", **OWNERS["ada"]) == 404
    async with serving(tmp_path) as place:
        assert await place.delete("broken") == 204


async def test_model_without_speaker_encoder_refuses_recordings(tmp_path: Path) -> None:
    async with serving(tmp_path, listens=False) as place:
        status, document = await place.post()
        assert (status, document["error"]) == (409, "unsupported_option")


async def test_public_address_without_keys_refuses_uploads_unless_they_are_allowed(tmp_path: Path) -> None:
    async with serving(tmp_path, host="0.0.0.0") as place:
        assert await place.names() == ["ada", "bob"]
        status, document = await place.post()
        assert (status, document["error"]) == (403, "forbidden")
        assert await place.delete("eve") == 403
    async with serving(tmp_path, host="0.0.0.0", voice_uploads=True) as place:
        assert (await place.post())[0] == 201
        assert await place.delete("eve") == 204


async def test_disabled_uploads_are_not_found(tmp_path: Path) -> None:
    async with serving(tmp_path, takes_uploads=False) as place:
        assert (await place.post())[0] == 405
        assert await place.delete("eve") == 405
