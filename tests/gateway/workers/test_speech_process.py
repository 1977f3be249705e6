"""Real worker processes before a tone engine in this process: what a gateway of several processes is to its clients."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import ssl
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import psutil
import pytest
import soundfile
from fakes.certificates import self_signed
from fakes.gateway.worker_processes import COMMAND, DEMO, UNPACED, WORKERS, connections, gateway, ready, say, url
from fakes.pipeline.base_checkpoint import write_demo_base
from fakes.pipeline.tone_engine import ToneEngine, tones
from fakes.waiting import DEADLINE_S, until
from voxgate.client import Audio, Done, Queued, Resumed, SpeechError, connect
from voxgate.client.session import Session
from voxgate.gateway.access.keys import hash_key
from voxgate.gateway.settings import Settings
from voxgate.gateway.workers.speech_process import SpeechProcess


async def test_every_worker_gives_the_same_audio_for_the_same_text() -> None:
    async with gateway() as served, contextlib.AsyncExitStack() as stack:
        by_worker = await connections(served, stack, 16)
        everyone = [session for sessions in by_worker.values() for session in sessions[:3]]
        spoken = await asyncio.gather(*(say(session, "Hello there, you.", seed=4) for session in everyone))
        first = spoken[0][0]
        assert len(first) > 5 * 1920
        for samples, done in spoken:
            assert done.reason == "end"
            np.testing.assert_array_equal(samples, first)
        tone = tones()
        for frame in first.reshape(-1, 1920):
            assert np.abs(frame / 32768 - tone).max(axis=1).min() < 1e-3, "it is one of the engine's tones"


async def test_first_frames_decoded_by_the_engine_equal_others() -> None:
    """One after another, so that places are lent again, and some are cut off as soon as they are heard."""
    heard = []
    for decodes_first in (False, True):
        engine = ToneEngine(DEMO, decodes_first=decodes_first)
        async with gateway(engine) as served, connect(url(served)) as session:
            for cut in (True, False, True, False):
                if cut:
                    async with session.utterance(format=UNPACED["format"]) as utterance:
                        await utterance.send("A few words that are cut off before their end.")
                        await anext(aiter(utterance.audio()))
                else:
                    heard.append((await say(session, "Hello there.", seed=4, pacing="playback"))[0])
        assert engine.first_sounds == 4 * decodes_first
    for samples in heard[1:]:
        np.testing.assert_array_equal(samples, heard[0])


async def test_slots_are_shared_and_the_queue_takes_turns_over_the_workers() -> None:
    engine = ToneEngine(DEMO, slots=2, step_s=0.01)
    async with gateway(engine, queue_length=8, queue_wait_ms=20_000) as served, contextlib.AsyncExitStack() as stack:
        by_worker = await connections(served, stack, 12)
        sessions = [session for each in by_worker.values() for session in each[:3]]
        queued: Counter[str] = Counter()

        async def one(session: Session) -> Done:
            async with session.utterance(**UNPACED) as utterance:
                await utterance.send("A few words to be said by every worker here.")
                await utterance.end()
                async for event in utterance.events():
                    if isinstance(event, Queued):
                        queued[session.info.session] += 1
                    elif isinstance(event, Done):
                        return event
            raise AssertionError("it ended without a word")

        async with asyncio.timeout(DEADLINE_S):
            done = await asyncio.gather(*map(one, sessions))
        assert all(each.reason == "end" for each in done)
        assert len(queued) >= 2
        await until(lambda: served._admission.active == 0)


async def test_connection_without_a_free_slot_is_refused() -> None:
    engine = ToneEngine(DEMO, slots=1, step_s=0.02)
    async with gateway(engine, queue_length=0) as served, contextlib.AsyncExitStack() as stack:
        by_worker = await connections(served, stack, 12)
        first, second = (sessions[0] for sessions in by_worker.values())
        async with first.utterance(**UNPACED) as speaking:
            await speaking.send("This is going to take its time.")
            await anext(aiter(speaking.audio()))
            with pytest.raises(SpeechError) as refused:
                await say(second, "Let me in.")
            assert (refused.value.code, refused.value.reached) == ("at_capacity", "queue")
            assert refused.value.retry_after_ms
        await until(lambda: engine.lent == 0)
        await say(second, "Now.")


async def test_voice_made_in_one_worker_is_offered_by_all(tmp_path: Path) -> None:
    folder = write_demo_base(tmp_path / "base", DEMO)
    buffer = io.BytesIO()
    sound = np.random.default_rng(1).standard_normal(4 * 24_000) * np.hanning(4 * 24_000)
    soundfile.write(buffer, 0.2 * sound, 24_000, format="FLAC")

    async def lists(http: aiohttp.ClientSession) -> set[bool]:
        """Whether every worker offers ada."""
        told = set()
        for _ in range(12):
            answer = await http.get(f"{url(served)}/v1/voices", headers={"Connection": "close"})
            told.add("ada" in await answer.text())
        return told

    async with (
        gateway(folder=folder, voices_dir=tmp_path / "voices") as served,
        contextlib.AsyncExitStack() as stack,
        aiohttp.ClientSession() as http,
    ):
        by_worker = await connections(served, stack, 12)
        assert await lists(http) == {False}
        answer = await http.post(f"{url(served)}/v1/voices?name=ada", data=buffer.getvalue())
        assert answer.status == 201, await answer.text()
        assert await lists(http) == {True}
        for session, *_ in by_worker.values():
            assert (await say(session, "With a voice of one's own.", voice="ada"))[1].reason == "end"
        assert (await http.delete(f"{url(served)}/v1/voices/ada")).status == 204
        assert await lists(http) == {False}
        for session, *_ in by_worker.values():
            with pytest.raises(SpeechError) as unknown:
                await say(session, "And without.", voice="ada")
            assert unknown.value.code == "unknown_voice"


async def test_metrics_documents_and_pages_are_the_same_from_every_worker() -> None:
    async with gateway() as served, contextlib.AsyncExitStack() as stack:
        by_worker = await connections(served, stack, 12)
        opened = sum(map(len, by_worker.values()))
        for sessions in by_worker.values():
            await say(sessions[0], "Counted.")
        async with aiohttp.ClientSession() as http:
            for _ in range(6):
                answer = await http.get(f"{url(served)}/metrics", headers={"Connection": "close"})
                lines = (await answer.text()).splitlines()
                assert 'voxgate_utterances_total{outcome="done",protocol="native"} 2.0' in lines
                assert f'voxgate_sessions_total{{protocol="native"}} {opened}.0' in lines
                assert f'voxgate_sockets{{protocol="native"}} {opened}.0' in lines
                assert "voxgate_slots 8.0" in lines
                assert "voxgate_engine_starts_total 1.0" in lines
            limits: dict[str, Any] = {}
            async with asyncio.timeout(DEADLINE_S):
                while limits.get("utterances") != {"active": 0, "limit": 8}:  # they are told a moment later
                    limits = await (await http.get(f"{url(served)}/v1/limits")).json()
            assert limits["sockets"]["open"] == opened
            assert (await http.get(f"{url(served)}/readyz")).status == 200
            assert (await http.get(f"{url(served)}/")).status == 200
            body = {"model": "tts-1", "input": "Over plain HTTP.", "voice": "heart", "response_format": "pcm"}
            spoken = await http.post(f"{url(served)}/v1/audio/speech", json=body)
            assert spoken.status == 200
            assert len(await spoken.read()) > 4 * 3840


async def test_limits_of_a_key_hold_over_all_workers(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(
        f'[keys.ada]\nhash = "{hash_key("a")}"\nsockets = 4\nutterances = 2\ncharacters_per_minute = 100\n', "utf-8"
    )
    engine = ToneEngine(DEMO, step_s=0.01)
    async with gateway(engine, keys_file=path) as served, contextlib.AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(connect(url(served), key="a")) for _ in range(4)]
        with pytest.raises(Exception, match="at most 4 open sockets"):
            await stack.enter_async_context(connect(url(served), key="a"))
        async with contextlib.AsyncExitStack() as speaking:
            for session in sessions[:2]:
                utterance = await speaking.enter_async_context(session.utterance(**UNPACED))
                await utterance.send("Some words of our own, about forty here.")
                await anext(aiter(utterance.audio()))
            with pytest.raises(SpeechError, match="2 active utterances"):
                await say(sessions[2], "And me?")
        # What one worker tells of the end of an utterance may come after what another asks for.
        await until(lambda: engine.lent == 0)
        with pytest.raises(SpeechError, match="100 characters"):
            await say(sessions[3], "Some words of our own, about forty here.")
        # A token of one worker's opens a socket at any.
        async with aiohttp.ClientSession() as http:
            headers = {"Authorization": "Bearer a"}
            token = (await (await http.post(f"{url(served)}/v1/tokens", headers=headers)).json())["token"]
            for _ in range(6):
                answer = await http.get(f"{url(served)}/v1/voices?token={token}", headers={"Connection": "close"})
                assert answer.status == 200


async def test_keys_are_reloaded_by_all_workers(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(f'[keys.ada]\nhash = "{hash_key("a")}"\n', "utf-8")

    async def statuses(http: aiohttp.ClientSession, key: str) -> set[int]:
        headers = {"Authorization": f"Bearer {key}", "Connection": "close"}
        return {(await http.get(f"{url(served)}/v1/voices", headers=headers)).status for _ in range(12)}

    async with gateway(keys_file=path) as served, aiohttp.ClientSession() as http:
        assert await statuses(http, "a") == {200}
        path.write_text(f'[keys.bob]\nhash = "{hash_key("b")}"\n', "utf-8")
        served.reload()
        async with asyncio.timeout(DEADLINE_S):
            while await statuses(http, "b") != {200}:
                await asyncio.sleep(0.02)
        assert await statuses(http, "a") == {401}
        # A worker that starts has the keys of the others, also while the file cannot be used.
        path.write_text("garbage [", "utf-8")
        served.reload()
        os.kill(lost := served.pids[0], signal.SIGKILL)
        await until(lambda: lost not in served.pids)
        await ready(served)
        await until(lambda: len(served.pids) == WORKERS)
        assert await statuses(http, "b") == {200}


async def test_tls_ends_in_the_workers(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path, "gateway")
    trusting = ssl.create_default_context(cafile=str(certificate))
    async with gateway(tls_certificate=certificate, tls_key=key) as served:
        for _ in range(4):
            async with connect(f"https://127.0.0.1:{served.port}", tls=trusting) as session:
                assert (await say(session, "In secret."))[1].reason == "end"


async def test_drain_finishes_speech_and_refuses_new_speech() -> None:
    engine = ToneEngine(DEMO, step_s=0.02)
    async with gateway(engine, shutdown_grace_s=20) as served, contextlib.AsyncExitStack() as stack:
        by_worker = await connections(served, stack, 12)
        sessions = [each[0] for each in by_worker.values()]
        speaking = asyncio.gather(*(say(session, "To be heard to its very end.") for session in sessions))
        await until(lambda: engine.frames >= 4)
        pids = served.pids
        async with asyncio.timeout(DEADLINE_S):
            await served.drain()
        for _, done in await speaking:
            assert done.reason == "end"
        assert not any(psutil.pid_exists(pid) for pid in pids)


async def test_haproxy_agent_counts_all_workers() -> None:
    async with gateway(haproxy_agent_port=0, sockets=20) as served, contextlib.AsyncExitStack() as stack:
        await connections(served, stack, 10)
        reader, writer = await asyncio.open_connection("127.0.0.1", served.haproxy_agent_port)
        assert (await reader.read()).decode() == "ready up 50%\n"
        writer.close()
        with pytest.raises(Exception, match="sockets are in use"):
            await connections(served, stack, 11)


async def test_address_in_use_raises() -> None:
    async with gateway() as served:
        other = SpeechProcess(Settings(port=served.port, workers=2), ToneEngine(DEMO), DEMO, 2, COMMAND)
        with pytest.raises(OSError, match="in use"):
            await other.open()
        await other.close()


def test_settings_reach_a_worker_unchanged() -> None:
    settings = Settings(port=0, workers=3, keys=("a=sha256:" + "0" * 64,), voice_aliases=("x=y",))
    assert Settings.model_validate_json(settings.model_dump_json()) == settings
    assert json.loads(settings.model_dump_json())["workers"] == 3


async def test_session_is_resumed_in_the_worker_that_has_it() -> None:
    """The kernel chooses a worker for each connection; the client tries until it is the right one."""
    engine = ToneEngine(DEMO, step_s=0.01)
    async with gateway(engine) as served, connect(url(served)) as session:
        changes, samples, received = [], 0, 0
        async with session.utterance(seed=5) as utterance:
            await utterance.feed("A few words to be said, and to be heard, over several connections. " * 4)
            async for event in utterance.events():
                if isinstance(event, Audio):
                    samples += event.samples
                    # Once a connection: audio that was received before its abort is still to come.
                    received += 1
                    if received == 3 and len(changes) < 3:
                        session.transport.abort()
                elif isinstance(event, Resumed):
                    changes.append(event)
                    received = 0
        assert utterance.done is not None
        assert samples == utterance.done.samples
        assert len(changes) == 3
