"""A process that attaches to an engine, loses it, and attaches again."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import astuple, replace
from importlib.resources import files
from pathlib import Path
from unittest.mock import patch

import pytest
from fakes.pipeline.silent_codec_worker import SilentCodecWorker
from fakes.waiting import until
from voxgate.pipeline.errors import EngineLost, EngineNotReady
from voxgate.pipeline.interface import EngineState, LeasedSlots, MarkupDialect, SpeechRequest
from voxgate.pipeline.ipc.engine_messages import Attach, Attached, Message
from voxgate.pipeline.ipc.slot_tables import SlotTables, TableShape
from voxgate.pipeline.ipc.wakeup import WakeupListener
from voxgate.pipeline.remote_synthesizer import RemoteSynthesizer
from voxgate.pipeline.talker.remote_engine import RemoteTalkerEngine
from voxgate.pipeline.text.markup import filter as markup
from voxgate.pipeline.voice_model import SynthesizerOptions

DEMO = Path(str(files("voxgate.voices"))) / "demo"
SHAPE = TableShape(slots=2, prefix=64, text=64, frames=64, groups=16, hidden=8)
REQUEST = SpeechRequest("heart")


class AttachScene:
    """A process, the messages it sent to the speech process, and an engine's attachment."""

    def __init__(self, codec: SilentCodecWorker) -> None:
        self.codec = codec
        self.sent: list[Message] = []
        self.attached: list[bool] = []
        """Whether it could speak, each time that it was attached."""
        self.voice = RemoteSynthesizer(DEMO, SynthesizerOptions(slots=2), self.sent.append)
        self.voice.reported_state = EngineState.READY
        self._tables, path = SlotTables.create(SHAPE)
        run = uuid.uuid4().hex
        reports, self.wakeup_address = f"voxgate-test-reports-{run}", f"voxgate-test-wakeup-{run}"
        self.attachment = Attach(1, 1, path, astuple(SHAPE), reports, self.wakeup_address, codec.address, 4, 8)

    def attach(self, attachment: Attach | None = None) -> None:
        self.voice.attach(attachment or self.attachment, lambda: self.attached.append(self.can_speak))

    def answer(self, error: str | None = None) -> Attached:
        return Attached(self.attachment.reports, error)

    @property
    def can_speak(self) -> bool:
        """Whether a request gets as far as needing leased slots."""
        try:
            self.voice.open(REQUEST)
        except EngineNotReady as error:
            return "slot" in error.message
        raise AssertionError("no slots were leased")

    async def until_sent(self, done: Callable[[list[Message]], bool]) -> None:
        await until(lambda: done(self.sent))


def test_a_rehearsal_compiles_what_an_utterance_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markup, "_INDEXES", {})
    voice = RemoteSynthesizer(DEMO, SynthesizerOptions(), [].append)
    request = replace(REQUEST, markup=tuple(MarkupDialect))
    voice.rehearse(request)
    assert list(markup._INDEXES) == [frozenset(MarkupDialect)]
    compiled = markup._INDEXES.copy()
    voice.prepare(request)
    assert compiled == markup._INDEXES


@contextlib.asynccontextmanager
async def attach_scene() -> AsyncIterator[AttachScene]:
    async with SilentCodecWorker().open() as codec:
        scene = AttachScene(codec)
        try:
            yield scene
        finally:
            await scene.voice.close()


async def test_lost_codec_connection_is_reported_and_next_attachment_restores() -> None:
    async with attach_scene() as scene:
        assert not scene.can_speak
        scene.attach()
        await scene.until_sent(lambda sent: sent == [scene.answer()])
        assert scene.voice.state is EngineState.READY
        assert scene.can_speak
        assert scene.attached == [True]
        scene.codec.disconnect()
        await scene.until_sent(lambda sent: len(sent) == 2)
        cut = scene.sent[1]
        assert isinstance(cut, Attached)
        assert cut.error
        assert scene.voice.state is EngineState.STARTING
        # The same engine: this process still receives its frames.
        scene.attach()
        await scene.until_sent(lambda sent: sent[2:] == [scene.answer()])
        assert scene.can_speak


async def test_death_of_a_codec_that_was_dropped_is_not_reported() -> None:
    """A process that stood still reads the end of an engine's codec, and the next engine's attachment, at once."""
    async with attach_scene() as scene:
        scene.attach()
        await scene.until_sent(lambda sent: sent == [scene.answer()])
        dropped = scene.voice._codec
        assert dropped is not None
        assert dropped._on_death is not None
        scene.voice.detach("the voice model was lost")
        scene.attach()
        dropped._on_death(EngineLost("the codec worker died"))
        await scene.until_sent(lambda sent: len(sent) == 2)
        assert scene.sent[1] == scene.answer()


async def test_attaching_twice_is_harmless() -> None:
    async with attach_scene() as scene:
        scene.attach()
        scene.attach()
        await scene.until_sent(lambda sent: sent == [scene.answer()])
        scene.attach()
        await scene.until_sent(lambda sent: sent == [scene.answer()] * 2)
        assert len(scene.codec.connections) <= 2
        assert scene.can_speak


async def test_unreachable_engine_is_reported_and_next_one_used() -> None:
    async with attach_scene() as scene:
        scene.attach(replace_codec(scene.attachment, "voxgate-absent"))
        await scene.until_sent(lambda sent: len(sent) == 1)
        failed = scene.sent[0]
        assert isinstance(failed, Attached)
        assert failed.error is not None
        assert "cannot be reached" in failed.error
        assert not scene.can_speak
        scene.attach()
        await scene.until_sent(lambda sent: sent[1:] == [scene.answer()])


async def test_detach_during_attach_leaves_nothing_attached() -> None:
    async with attach_scene() as scene:
        scene.attach()
        scene.voice.detach("it was lost")
        await scene.voice.close()
        assert scene.sent == []
        assert not scene.can_speak


async def test_wake_reaches_engine_without_speech_process() -> None:
    async with attach_scene() as scene:
        with contextlib.closing(WakeupListener(scene.wakeup_address)) as engine:
            talker = RemoteTalkerEngine(scene.attachment, scene.sent.append, lambda _: None)
            talker.wake()
            talker.wake()
            await until(engine.read)
            await asyncio.sleep(0)
            assert not engine.read()
            assert scene.sent == []
            talker.lose("the test is over")


async def test_utterance_is_expected_in_the_engines_tables() -> None:
    async with attach_scene() as scene:
        scene.voice.expect_utterance()  # before it is attached
        scene.attach()
        await until(lambda: scene.attached == [True])
        scene.voice.expect_utterance()
        assert scene._tables.expected_s.nonzero()[0].tolist() == [1]


async def test_reserved_prompt_is_for_the_first_speech_in_a_lease() -> None:
    """A retraction has another speech begin in the same slots, when the row may be reserved for others."""
    async with attach_scene() as scene:
        scene.attach()
        await until(lambda: scene.attached == [True])
        place, reserved = LeasedSlots(0, 0, 2), []
        with patch.object(RemoteTalkerEngine, "reserve", lambda _, slot, row: reserved.append((slot, row))):
            for _ in range(2):
                slots = scene.voice._take_slots(place, None, paced=True)
                await slots.codec.aclose()
        assert reserved == [(0, 2), (0, None)]


async def test_malformed_report_detaches_and_next_attachment_restores() -> None:
    async with attach_scene() as scene:
        scene.attach()
        await scene.until_sent(lambda sent: sent == [scene.answer()])
        assert scene.voice._talker is not None
        scene.voice._talker._receive(b"abc")
        assert scene.sent[1:] == [scene.answer("the talker's engine sent a malformed report")]
        assert scene.voice.state is EngineState.STARTING
        assert not scene.can_speak
        scene.attach()
        await scene.until_sent(lambda sent: sent[2:] == [scene.answer()])
        assert scene.can_speak


def replace_codec(attachment: Attach, address: str) -> Attach:
    return Attach(**{name: getattr(attachment, name) for name in attachment.__struct_fields__} | {"codec": address})
