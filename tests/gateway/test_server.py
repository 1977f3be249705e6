"""Serving until a signal: drain, second signal, engine losses and failed starts."""

from __future__ import annotations

import asyncio
import json
import os
import signal

import pytest
from fakes.gateway.loopback import ask, next_of
from fakes.gateway.packet_encoder import FakeEncoder, s16le
from fakes.gateway.worker_processes import COMMAND, DEMO, UNPACED
from fakes.pipeline.tone_engine import ToneEngine
from fakes.pipeline.tone_synthesizer import ToneScript, ToneSynthesizer, tone_pcm
from fakes.waiting import DEADLINE_S, until
from voxgate.client import connect as connect_client
from voxgate.gateway.audio_header import AudioHeader
from voxgate.gateway.server import Gateway, serve_until_signal
from voxgate.gateway.settings import Settings, SettingsError
from voxgate.gateway.workers.speech_process import SpeechProcess
from voxgate.pipeline.errors import EngineError
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed


class Served:
    """A gateway served in a task; `port` returns once it listens."""

    def __init__(self, synthesizer: ToneSynthesizer, **options: object) -> None:
        self._ports: asyncio.Queue[int] = asyncio.Queue()
        gateway = Gateway(Settings.model_validate({"port": 0, **options}), synthesizer, FakeEncoder)
        self.task = asyncio.create_task(serve_until_signal(gateway, self._ports.put_nowait))

    async def url(self) -> str:
        return f"ws://127.0.0.1:{await self._ports.get()}/v1/speech"


def send_sigterm() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


async def test_first_signal_lets_active_utterances_finish() -> None:
    synthesizer = ToneSynthesizer()
    served = Served(synthesizer)
    url = await served.url()

    async def receive(text: str) -> bytes:
        """Starts an utterance whose text ends only once the shutdown is announced; returns its audio."""
        audio = b""
        async with connect(url) as socket:
            await ask(socket, type="start", utterance="a", format={"codec": "pcm"})
            await ask(socket, type="text", utterance="a", text=text)
            while True:
                message = await socket.recv()
                if isinstance(message, bytes):
                    audio += AudioHeader.unpack(message)[1]
                elif json.loads(message)["type"] == "going_away":
                    await ask(socket, type="end", utterance="a")
                elif json.loads(message)["type"] == "done":
                    return audio

    texts = [f"{i} is it." for i in range(4)]
    received = asyncio.gather(*(receive(text) for text in texts))
    await until(lambda: len(synthesizer.open_speeches) == 4)
    send_sigterm()
    async with asyncio.timeout(DEADLINE_S):
        assert await received == [s16le(tone_pcm(text)) for text in texts]
        await served.task


async def test_second_signal_closes_sockets_at_once() -> None:
    synthesizer = ToneSynthesizer()
    served = Served(synthesizer)
    async with connect(await served.url()) as socket:
        await ask(socket, type="start", utterance="a", format={"codec": "pcm"})
        await ask(socket, type="text", utterance="a", text="Hold. ")
        await next_of(socket, "started")
        send_sigterm()
        await next_of(socket, "going_away")
        send_sigterm()
        async with asyncio.timeout(DEADLINE_S):
            await served.task
        with pytest.raises(ConnectionClosed):
            await next_of(socket, "none")
        assert socket.close_code == 1012
    assert not synthesizer.open_speeches


async def test_utterance_outlives_the_loss_of_the_engine_during_the_drain() -> None:
    synthesizer = ToneSynthesizer()
    served = Served(synthesizer)
    async with connect(await served.url()) as socket:
        await ask(socket, type="start", utterance="a", format={"codec": "pcm"})
        await ask(socket, type="text", utterance="a", text="Hold. ")
        await next_of(socket, "started")
        send_sigterm()
        await next_of(socket, "going_away")
        synthesizer.lose()
        assert (await next_of(socket, "warning"))["code"] == "engine_restarts"
        await ask(socket, type="end", utterance="a")
        await next_of(socket, "done")
        async with asyncio.timeout(DEADLINE_S):
            await served.task


class ScriptedGateway:
    """A gateway whose drain lasts until `drained` is set; counts what it is asked."""

    port = 1
    haproxy_agent_port = None
    admin_port = None

    def __init__(self, engine_error: EngineError | None = None) -> None:
        self.engine_error = engine_error
        self.drained, self.lose_engine = asyncio.Event(), asyncio.Event()
        self.may_open = asyncio.Event()
        self.may_open.set()
        self.reloads = 0
        self.opening = self.engine_running = self.draining = self.closed = False

    async def open(self) -> None:
        self.opening = True
        await self.may_open.wait()

    def reload(self) -> None:
        self.reloads += 1

    async def run_engine(self) -> None:
        self.engine_running = True
        try:
            await self.lose_engine.wait()
            raise self.engine_error or EngineError("lost")
        finally:
            self.engine_running = False

    async def drain(self) -> None:
        self.draining = True
        await self.drained.wait()

    async def close(self) -> None:
        self.closed = True


async def test_engine_is_supervised_until_the_drain_has_ended() -> None:
    gateway = ScriptedGateway()
    serving = asyncio.create_task(serve_until_signal(gateway))
    await until(lambda: gateway.engine_running)
    send_sigterm()
    await until(lambda: gateway.draining)
    assert gateway.engine_running
    gateway.drained.set()
    await serving
    assert (gateway.engine_running, gateway.closed) == (False, True)


async def test_failure_of_the_engine_during_the_drain_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    gateway = ScriptedGateway(EngineError("no such checkpoint"))
    serving = asyncio.create_task(serve_until_signal(gateway))
    await until(lambda: gateway.engine_running)
    send_sigterm()
    await until(lambda: gateway.draining)
    gateway.lose_engine.set()
    await until(lambda: not gateway.engine_running)
    assert not gateway.closed, "the drain continues"
    gateway.drained.set()
    await serving
    assert "engine failed during shutdown: no such checkpoint" in caplog.text


async def test_utterance_of_a_worker_outlives_the_loss_of_the_engine_during_the_drain() -> None:
    engine = ToneEngine(DEMO)
    gateway = SpeechProcess(Settings(port=0, log_level="warning"), engine, DEMO, 1, COMMAND)
    serving = asyncio.create_task(serve_until_signal(gateway))
    await until(lambda: gateway.port and gateway.state.speaks)
    async with connect_client(f"http://127.0.0.1:{gateway.port}") as session:
        async with session.utterance(**UNPACED) as utterance:
            await utterance.send("A few words whose end does not come.")
            audio = aiter(utterance.audio())
            await anext(audio)
            send_sigterm()
            await until(lambda: session.going_away_ms is not None)
            engine.lose()
            await utterance.send("And that is all.")
            await utterance.end()
            async for _ in audio:
                pass
        assert engine.starts == 2
    async with asyncio.timeout(DEADLINE_S):
        await serving


async def test_signal_while_the_gateway_opens_ends_it_without_an_engine() -> None:
    """Opening takes as long as workers take to start."""
    gateway = ScriptedGateway()
    gateway.may_open.clear()
    serving = asyncio.create_task(serve_until_signal(gateway))
    await until(lambda: gateway.opening)
    send_sigterm()
    async with asyncio.timeout(DEADLINE_S):
        await serving
    assert (gateway.engine_running, gateway.draining, gateway.closed) == (False, False, True)


async def test_hangup_while_the_gateway_opens_reloads_once_it_is_open() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    gateway = ScriptedGateway()
    gateway.may_open.clear()
    serving = asyncio.create_task(serve_until_signal(gateway))
    await until(lambda: gateway.opening)
    os.kill(os.getpid(), signal.SIGHUP)
    await asyncio.sleep(0)
    assert gateway.reloads == 0
    gateway.may_open.set()
    await until(lambda: gateway.engine_running and gateway.reloads == 1)
    os.kill(os.getpid(), signal.SIGHUP)
    await until(lambda: gateway.reloads == 2)
    send_sigterm()
    gateway.drained.set()
    await serving
    assert signal.signal(signal.SIGHUP, before) is signal.SIG_IGN


async def test_model_that_cannot_be_loaded_ends_the_gateway() -> None:
    synthesizer = ToneSynthesizer(ToneScript(start_failures=[EngineError("no such checkpoint")]))
    with pytest.raises(EngineError, match="no such checkpoint"):
        await Served(synthesizer).task


async def test_configured_voice_that_does_not_exist_ends_the_gateway() -> None:
    with pytest.raises(SettingsError, match="eve"):
        await Served(ToneSynthesizer(), voice="eve").task
