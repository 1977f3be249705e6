"""A process that shares an engine: how it finds its way in, loses it, and finds it again."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import astuple
from importlib.resources import files
from pathlib import Path

import pytest
from fakes.pipeline.silent_codec_worker import SilentCodecWorker
from fakes.waiting import DEADLINE_S, until
from voxgate.pipeline.errors import AtCapacity, EngineNotReady
from voxgate.pipeline.interface import EngineState, SpeechRequest
from voxgate.pipeline.ipc.engine_messages import Attach, Attached, Message
from voxgate.pipeline.ipc.slot_tables import SlotTables, TableShape
from voxgate.pipeline.remote_synthesizer import RemoteSynthesizer
from voxgate.pipeline.talker.remote_engine import RemoteTalkerEngine
from voxgate.pipeline.voice_model import SynthesizerOptions

DEMO = Path(str(files("voxgate.voices"))) / "demo"
SHAPE = TableShape(slots=2, prefix=64, text=64, frames=64, groups=16, hidden=8)
REQUEST = SpeechRequest("slt")


class Stage:
    """A process, what it told the speech process, and an engine's way in."""

    def __init__(self, codec: SilentCodecWorker) -> None:
        self.codec = codec
        self.said: list[Message] = []
        self.voice = RemoteSynthesizer(DEMO, SynthesizerOptions(slots=2), self.said.append)
        self.voice.reported_state = EngineState.READY
        self._tables, path = SlotTables.create(SHAPE)
        run = uuid.uuid4().hex
        reports, self.bell = f"voxgate-test-reports-{run}", f"voxgate-test-bell-{run}"
        self.attachment = Attach(1, 1, path, astuple(SHAPE), reports, self.bell, codec.address, 4, 8)

    @property
    def can_speak(self) -> bool:
        """As a request without a place finds it."""
        try:
            self.voice.open(REQUEST)
        except EngineNotReady:
            return False
        except AtCapacity:
            return True
        raise AssertionError("no place was lent")

    async def told(self, done: Callable[[list[Message]], bool]) -> None:
        await until(lambda: done(self.said))


@contextlib.asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    async with SilentCodecWorker().open() as codec:
        scene = Stage(codec)
        try:
            yield scene
        finally:
            await scene.voice.close()


async def test_a_process_cut_off_from_the_codec_says_so_and_is_let_in_again() -> None:
    async with stage() as scene:
        assert not scene.can_speak
        scene.voice.attach(scene.attachment)
        await scene.told(lambda said: said == [Attached(None)])
        assert scene.voice.state is EngineState.READY
        assert scene.can_speak
        scene.codec.disconnect()
        await scene.told(lambda said: len(said) == 2)
        cut = scene.said[1]
        assert isinstance(cut, Attached)
        assert cut.error
        assert scene.voice.state is EngineState.STARTING
        # The same engine: its frames still come where they came.
        scene.voice.attach(scene.attachment)
        await scene.told(lambda said: said[2:] == [Attached(None)])
        assert scene.can_speak


async def test_to_be_let_in_twice_is_as_good_as_once() -> None:
    async with stage() as scene:
        scene.voice.attach(scene.attachment)
        scene.voice.attach(scene.attachment)
        await scene.told(lambda said: said == [Attached(None)])
        scene.voice.attach(scene.attachment)
        await scene.told(lambda said: said == [Attached(None)] * 2)
        assert len(scene.codec.connections) <= 2
        assert scene.can_speak


async def test_an_engine_that_is_gone_is_told_and_another_found() -> None:
    async with stage() as scene:
        scene.voice.attach(replace_codec(scene.attachment, "voxgate-nobody"))
        await scene.told(lambda said: len(said) == 1)
        failed = scene.said[0]
        assert isinstance(failed, Attached)
        assert failed.error is not None
        assert "cannot be reached" in failed.error
        assert not scene.can_speak
        scene.voice.attach(scene.attachment)
        await scene.told(lambda said: said[1:] == [Attached(None)])


async def test_an_engine_lost_on_the_way_in_is_not_spoken_through() -> None:
    async with stage() as scene:
        scene.voice.attach(scene.attachment)
        scene.voice.detach("it was lost")
        await scene.voice.close()
        assert scene.said == []
        assert not scene.can_speak


async def test_the_engine_is_woken_whether_or_not_the_speech_process_stirs() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as engine:
        engine.setblocking(False)
        async with stage() as scene:
            engine.bind(f"\0{scene.bell}")
            talker = RemoteTalkerEngine(scene.attachment, scene.said.append, lambda _: None)
            talker.wake()
            talker.wake()
            async with asyncio.timeout(DEADLINE_S):
                assert await asyncio.get_running_loop().sock_recv(engine, 8) == b"!"
            with pytest.raises(BlockingIOError):
                engine.recv(8)
            assert scene.said == []
            talker.lose("the test is over")


async def test_malformed_report_detaches_and_next_attachment_restores() -> None:
    async with stage() as scene:
        scene.voice.attach(scene.attachment)
        await scene.told(lambda said: said == [Attached(None)])
        assert scene.voice._talker is not None
        scene.voice._talker._receive(b"abc")
        assert scene.said[1:] == [Attached("the talker's engine sent a malformed report")]
        assert scene.voice.state is EngineState.STARTING
        assert not scene.can_speak
        scene.voice.attach(scene.attachment)
        await scene.told(lambda said: said[2:] == [Attached(None)])
        assert scene.can_speak


def replace_codec(attachment: Attach, address: str) -> Attach:
    return Attach(**{name: getattr(attachment, name) for name in attachment.__struct_fields__} | {"codec": address})
