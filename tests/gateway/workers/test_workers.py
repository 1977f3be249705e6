"""Real worker processes before a tone engine in this process: what a gateway of several processes is to its clients."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import ssl
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import psutil
import pytest
import soundfile
from fakes.certificates import self_signed
from fakes.demo_base import write_demo_base
from fakes.tone_engine import ToneEngine, tones
from voxgate.client import AudioFormat, Done, Queued, SessionLost, SpeechError, connect
from voxgate.client.session import Session
from voxgate.gateway.access.keys import hash_of
from voxgate.gateway.restarts import Restarts
from voxgate.gateway.settings import Settings
from voxgate.gateway.workers import process
from voxgate.gateway.workers.speech_process import SpeechProcess
from voxgate.pipeline.errors import EngineError

DEMO = Path(str(files("voxgate.voices"))) / "demo"
COMMAND = [sys.executable, "-m", "voxgate.cli.serve_worker"]
WORKERS = 2
UNPACED: dict[str, Any] = {"pacing": "none", "format": AudioFormat(codec="pcm")}


@contextlib.asynccontextmanager
async def gateway(
    engine: ToneEngine | None = None,
    *,
    folder: Path = DEMO,
    before: Callable[[SpeechProcess], None] = lambda _: None,
    **options: Any,
) -> AsyncIterator[SpeechProcess]:
    """Ready to speak; checks that it leaves nothing behind. `before` happens while there is no engine yet."""
    engine = engine or ToneEngine(folder)
    settings = Settings(port=0, workers=WORKERS, log_level="warning", **options)
    served = SpeechProcess(settings, engine, folder, WORKERS, COMMAND)
    keeping: asyncio.Task[None] | None = None
    try:
        await served.open()
        before(served)
        keeping = asyncio.create_task(served.keep_engine())
        await ready(served)
        yield served
    finally:
        pids = served.pids
        if keeping is not None:
            keeping.cancel()
        await served.close()
        assert not any(psutil.pid_exists(pid) for pid in pids)
        assert engine.lent == 0


async def ready(served: SpeechProcess) -> None:
    await until(lambda: served.state.speaks)
    # Workers are told a moment later.
    await asyncio.sleep(0.1)


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not done():
            await asyncio.sleep(0.01)


def url(served: SpeechProcess) -> str:
    return f"http://127.0.0.1:{served.port}"


async def say(session: Session, text: str, **options: Any) -> tuple[np.ndarray, Done]:
    """The samples, int16, and how it ended."""
    heard = bytearray()
    async with asyncio.timeout(30), session.utterance(**(UNPACED | options)) as utterance:
        await utterance.send(text)
        await utterance.end()
        async for audio in utterance.audio():
            heard += audio.payload
        assert utterance.done is not None
        return np.frombuffer(heard, np.int16), utterance.done


async def connections(served: SpeechProcess, stack: contextlib.AsyncExitStack, count: int) -> dict[str, list[Session]]:
    """So many sessions, by the run of the worker that took them."""
    by_worker: dict[str, list[Session]] = {}
    for _ in range(count):
        session = await stack.enter_async_context(connect(url(served)))
        by_worker.setdefault(session.info.session.partition("-")[0], []).append(session)
    return by_worker


async def test_every_worker_speaks_the_same_text_the_same_way() -> None:
    async with gateway() as served, contextlib.AsyncExitStack() as stack:
        by_worker = await connections(served, stack, 16)
        assert len(by_worker) == WORKERS
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


async def test_slots_are_everybodys_and_the_queue_takes_turns_over_the_workers() -> None:
    engine = ToneEngine(DEMO, slots=2, step_s=0.01)
    async with gateway(engine, queue_length=8, queue_wait_ms=20_000) as served, contextlib.AsyncExitStack() as stack:
        by_worker = await connections(served, stack, 12)
        sessions = [session for each in by_worker.values() for session in each[:3]]
        assert len(by_worker) == WORKERS
        queued: Counter[str] = Counter()

        async def one(session: Session) -> Done:
            async with session.utterance(**UNPACED) as utterance:
                await utterance.send("A few words to be said by everybody here.")
                await utterance.end()
                async for event in utterance.events():
                    if isinstance(event, Queued):
                        queued[session.info.session] += 1
                    elif isinstance(event, Done):
                        return event
            raise AssertionError("it ended without a word")

        async with asyncio.timeout(60):
            done = await asyncio.gather(*map(one, sessions))
        assert all(each.reason == "end" for each in done)
        assert len(queued) >= 2
        await until(lambda: served._admission.active == 0)


async def test_who_finds_every_place_taken_is_refused() -> None:
    engine = ToneEngine(DEMO, slots=1, step_s=0.02)
    async with gateway(engine, queue_length=0) as served, contextlib.AsyncExitStack() as stack:
        by_worker = await connections(served, stack, 12)
        first, second = (sessions[0] for sessions in by_worker.values())
        async with first.utterance(**UNPACED) as speaking:
            await speaking.send("This is going to take its time.")
            await anext(aiter(speaking.audio()))
            with pytest.raises(SpeechError) as refused:
                await say(second, "Let me in.")
            assert refused.value.code == "at_capacity"
            assert refused.value.retry_after_ms
        await until(lambda: engine.lent == 0)
        await say(second, "Now.")


async def test_a_worker_that_dies_takes_its_own_and_no_others() -> None:
    engine = ToneEngine(DEMO, step_s=0.02)
    async with gateway(engine) as served:
        async with contextlib.AsyncExitStack() as stack:
            by_worker = await connections(served, stack, 12)
            (doomed, *_), (spared, *_) = by_worker.values()
            text = "This sentence goes on for long enough to be cut in the middle of it. " * 3
            ends = asyncio.gather(say(doomed, text), say(spared, text), return_exceptions=True)
            await until(lambda: engine.frames >= 10)
            assert engine.lent == 2
            victim = next(pid for pid in served.pids if _serves(pid, doomed))
            os.kill(victim, signal.SIGKILL)
            lost, heard = await ends
            assert isinstance(lost, SessionLost)
            assert not isinstance(heard, BaseException)
            assert heard[1].reason == "end"
        assert engine.lent == 0
        await until(lambda: victim not in served.pids and len(served.pids) == WORKERS)
        await until(lambda: all(worker.attached for worker in served._workers.values()))
        async with contextlib.AsyncExitStack() as stack:
            by_worker = await connections(served, stack, 16)
            assert len(by_worker) == WORKERS
            for sessions in by_worker.values():
                assert (await say(sessions[0], "Here again."))[1].reason == "end"


async def test_a_worker_that_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "HANG_S", 0.5)
    monkeypatch.setattr(process, "PULSE_S", 0.05)
    async with gateway() as served:
        stopped = served.pids[0]
        os.kill(stopped, signal.SIGSTOP)
        await until(lambda: stopped not in served.pids and len(served.pids) == WORKERS)
        assert not psutil.pid_exists(stopped)
        await until(lambda: all(worker.attached for worker in served._workers.values()))
        async with contextlib.AsyncExitStack() as stack:
            by_worker = await connections(served, stack, 16)
            assert len(by_worker) == WORKERS
            for sessions in by_worker.values():
                assert (await say(sessions[0], "Here again."))[1].reason == "end"


async def test_a_process_that_was_held_up_itself_kills_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateway() as served, connect(url(served)) as session:
        monkeypatch.setattr(process, "HANG_S", 0.2)
        living = [asyncio.create_task(worker.lived()) for worker in served._workers.values()]
        # Right after they were asked for a sign of life, before anybody can answer.
        asyncio.get_running_loop().call_soon(_hold_up, 0.2 + 2 * process.HELD_UP_S)
        assert (await say(session, "Still here."))[1].reason == "end"
        assert not any(each.done() for each in living)
        for each in living:
            each.cancel()


def _hold_up(seconds: float) -> None:
    """As if the process had been stopped."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        pass


async def test_a_worker_that_is_lost_while_the_engine_starts_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "HANG_S", 0.5)
    monkeypatch.setattr(process, "PULSE_S", 0.05)
    async with gateway(before=lambda served: os.kill(served.pids[0], signal.SIGSTOP)) as served:
        assert served.state.speaks
        async with contextlib.AsyncExitStack() as stack:
            by_worker = await connections(served, stack, 16)
            assert len(by_worker) == WORKERS
            for sessions in by_worker.values():
                assert (await say(sessions[0], "Here as well."))[1].reason == "end"


async def test_what_a_dead_worker_counted_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Restarts, "lost", lambda *_: 60.0)  # nobody takes its place meanwhile
    async with gateway() as served, contextlib.AsyncExitStack() as stack, aiohttp.ClientSession() as http:
        by_worker = await connections(served, stack, 12)
        for session, *_ in by_worker.values():
            await say(session, "Counted.")
        await (await http.get(f"{url(served)}/metrics", headers={"Connection": "close"})).text()
        (doomed, *_), spared = by_worker.values()
        victim = next(pid for pid in served.pids if _serves(pid, doomed))
        os.kill(victim, signal.SIGKILL)
        await until(lambda: victim not in served.pids)
        for _ in range(2):
            answer = await http.get(f"{url(served)}/metrics", headers={"Connection": "close"})
            lines = (await answer.text()).splitlines()
            assert 'voxgate_utterances_total{dialect="native",outcome="done"} 2.0' in lines
            assert 'voxgate_sessions_total{dialect="native"} 12.0' in lines
            assert f'voxgate_sockets{{dialect="native"}} {len(spared)}.0' in lines


async def test_a_voice_made_at_one_worker_is_everybodys(tmp_path: Path) -> None:
    folder = write_demo_base(tmp_path / "base", DEMO)
    buffer = io.BytesIO()
    sound = np.random.default_rng(1).standard_normal(4 * 24_000) * np.hanning(4 * 24_000)
    soundfile.write(buffer, 0.2 * sound, 24_000, format="FLAC")

    async def lists(http: aiohttp.ClientSession) -> set[bool]:
        """Whether ada is offered, as everybody says who is asked."""
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
        assert len(by_worker) == WORKERS
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


def _serves(pid: int, session: Session) -> bool:
    """Whether the other end of the session's socket is in that process."""
    port = session._socket.local_address[1]
    return any(each.raddr and each.raddr.port == port for each in psutil.Process(pid).net_connections("tcp"))


async def test_a_lost_engine_ends_its_utterances_and_leaves_the_sockets() -> None:
    engine = ToneEngine(DEMO, step_s=0.02)
    async with gateway(engine) as served, contextlib.AsyncExitStack() as stack:
        by_worker = await connections(served, stack, 12)
        sessions = [each[0] for each in by_worker.values()]
        text = "Cut in the middle of it all. " * 5
        spoken = asyncio.gather(*(say(session, text) for session in sessions), return_exceptions=True)
        await until(lambda: engine.frames >= 10)
        engine.lose()
        for failure in await spoken:
            assert isinstance(failure, SpeechError)
            assert failure.code == "engine_lost"
        await until(lambda: engine.starts == 2)
        await ready(served)
        for session in sessions:
            assert (await say(session, "And on we go."))[1].reason == "end"


async def test_metrics_documents_and_pages_are_the_same_whoever_answers() -> None:
    async with gateway() as served, contextlib.AsyncExitStack() as stack:
        by_worker = await connections(served, stack, 12)
        for sessions in by_worker.values():
            await say(sessions[0], "Counted.")
        async with aiohttp.ClientSession() as http:
            for _ in range(6):
                answer = await http.get(f"{url(served)}/metrics", headers={"Connection": "close"})
                lines = (await answer.text()).splitlines()
                assert 'voxgate_utterances_total{dialect="native",outcome="done"} 2.0' in lines
                assert 'voxgate_sessions_total{dialect="native"} 12.0' in lines
                assert 'voxgate_sockets{dialect="native"} 12.0' in lines
                assert "voxgate_slots 8.0" in lines
                assert "voxgate_engine_starts_total 1.0" in lines
            limits: dict[str, Any] = {}
            async with asyncio.timeout(5):
                while limits.get("utterances") != {"active": 0, "limit": 8}:  # they are told a moment later
                    limits = await (await http.get(f"{url(served)}/v1/limits")).json()
            assert limits["sockets"]["open"] == 12
            assert (await http.get(f"{url(served)}/readyz")).status == 200
            assert (await http.get(f"{url(served)}/")).status == 200
            body = {"model": "tts-1", "input": "Over plain HTTP.", "voice": "slt", "response_format": "pcm"}
            spoken = await http.post(f"{url(served)}/v1/audio/speech", json=body)
            assert spoken.status == 200
            assert len(await spoken.read()) > 4 * 3840


async def test_limits_of_a_key_hold_over_all_workers(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(
        f'[keys.ada]\nhash = "{hash_of("a")}"\nsockets = 4\nutterances = 2\ncharacters_per_minute = 100\n', "utf-8"
    )
    engine = ToneEngine(DEMO, step_s=0.01)
    async with gateway(engine, keys_file=path) as served, contextlib.AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(connect(url(served), key="a")) for _ in range(4)]
        with pytest.raises(Exception, match="at most 4 sockets"):
            await stack.enter_async_context(connect(url(served), key="a"))
        async with contextlib.AsyncExitStack() as speaking:
            for session in sessions[:2]:
                utterance = await speaking.enter_async_context(session.utterance(**UNPACED))
                await utterance.send("Some words of our own, about forty here.")
                await anext(aiter(utterance.audio()))
            with pytest.raises(SpeechError, match="2 utterances"):
                await say(sessions[2], "And me?")
        with pytest.raises(SpeechError, match="100 characters"):
            await say(sessions[3], "Some words of our own, about forty here.")
        # A token of one worker's opens a socket at any.
        async with aiohttp.ClientSession() as http:
            headers = {"Authorization": "Bearer a"}
            token = (await (await http.post(f"{url(served)}/v1/tokens", headers=headers)).json())["token"]
            for _ in range(6):
                answer = await http.get(f"{url(served)}/v1/voices?token={token}", headers={"Connection": "close"})
                assert answer.status == 200


async def test_keys_are_read_anew_by_all_workers(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(f'[keys.ada]\nhash = "{hash_of("a")}"\n', "utf-8")

    async def statuses(http: aiohttp.ClientSession, key: str) -> set[int]:
        headers = {"Authorization": f"Bearer {key}", "Connection": "close"}
        return {(await http.get(f"{url(served)}/v1/voices", headers=headers)).status for _ in range(12)}

    async with gateway(keys_file=path) as served, aiohttp.ClientSession() as http:
        assert await statuses(http, "a") == {200}
        path.write_text(f'[keys.bob]\nhash = "{hash_of("b")}"\n', "utf-8")
        served.reload()
        async with asyncio.timeout(5):
            while await statuses(http, "b") != {200}:
                await asyncio.sleep(0.02)
        assert await statuses(http, "a") == {401}


async def test_tls_ends_in_the_workers(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path, "gateway")
    trusting = ssl.create_default_context(cafile=str(certificate))
    async with gateway(tls_certificate=certificate, tls_key=key) as served:
        for _ in range(4):
            async with connect(f"https://127.0.0.1:{served.port}", tls=trusting) as session:
                assert (await say(session, "In secret."))[1].reason == "end"


async def test_a_drain_lets_speech_end_and_takes_nothing_new() -> None:
    engine = ToneEngine(DEMO, step_s=0.02)
    async with gateway(engine, drain_s=20) as served, contextlib.AsyncExitStack() as stack:
        by_worker = await connections(served, stack, 12)
        sessions = [each[0] for each in by_worker.values()]
        speaking = asyncio.gather(*(say(session, "To be heard to its very end.") for session in sessions))
        await until(lambda: engine.frames >= 4)
        pids = served.pids
        async with asyncio.timeout(15):
            await served.drain()
        for _, done in await speaking:
            assert done.reason == "end"
        assert not any(psutil.pid_exists(pid) for pid in pids)


async def test_the_agent_counts_all_of_them() -> None:
    async with gateway(agent_port=0, sockets=20) as served, contextlib.AsyncExitStack() as stack:
        await connections(served, stack, 10)
        reader, writer = await asyncio.open_connection("127.0.0.1", served.agent_port)
        assert (await reader.read()).decode() == "ready up 50%\n"
        writer.close()
        with pytest.raises(Exception, match="every socket is taken"):
            await connections(served, stack, 11)


async def test_an_address_that_is_taken_is_told() -> None:
    async with gateway() as served:
        other = SpeechProcess(Settings(port=served.port, workers=2), ToneEngine(DEMO), DEMO, 2, COMMAND)
        with pytest.raises(OSError, match="in use"):
            await other.open()
        await other.close()


@pytest.mark.parametrize(
    ("command", "told"),
    [([sys.executable, "-c", ""], EngineError), (["/nowhere/python"], OSError), (["a\0b"], ValueError)],
    ids=["ends", "is not there", "is nonsense"],
)
async def test_a_worker_that_does_not_start_is_told(command: list[str], told: type[Exception]) -> None:
    served = SpeechProcess(Settings(port=0, workers=2), ToneEngine(DEMO), DEMO, 2, command)
    async with asyncio.timeout(20):
        with pytest.raises(told):
            await served.open()
        await served.close()


def test_the_settings_survive_the_way_to_a_worker() -> None:
    settings = Settings(port=0, workers=3, keys=("a=sha256:" + "0" * 64,), voice_aliases=("x=y",))
    assert Settings.model_validate_json(settings.model_dump_json()) == settings
    assert json.loads(settings.model_dump_json())["workers"] == 3
