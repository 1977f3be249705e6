"""A voice in a process that shares the engine: it does all there is to an utterance but to own the engine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .codec.client import CodecClient
from .credit import StaggeredCredit
from .errors import AtCapacity, EngineError, EngineLost, EngineNotReady
from .interface import EngineState, LeasedSlots, SpeechRequest
from .ipc.engine_messages import Attach, Attached, Message
from .step_times import StepSummary
from .talker.remote_engine import RemoteTalkerEngine
from .utterance import UtteranceSpeech
from .voice_model import SynthesizerOptions, VoiceModel

CONNECT_TIMEOUT_S = 10.0
"""The codec is ready before anybody is told of it."""

log = logging.getLogger(__name__)


class _LeasedSpeech(UtteranceSpeech):
    """Its place is somebody else's once it is closed, so it waits for what the codec still does in it."""

    def __init__(self, *parts: Any, settled: Callable[[], Any]) -> None:
        super().__init__(*parts)
        self._settled = settled

    async def aclose(self) -> None:
        await super().aclose()
        await self._settled()


class RemoteSynthesizer(VoiceModel):
    """The `Synthesizer` of `speech.py` in slots that are lent; `told` is what the speech process last said of itself.

    `start` and `close` are not for it: it goes with `attach` and `detach`.
    """

    def __init__(self, folder: Path, options: SynthesizerOptions, send: Callable[[Message], None]) -> None:
        super().__init__(folder, options)
        self.slots = self.capacity = options.slots or 1
        self.told = EngineState.STARTING
        self.step_times: Mapping[str, Sequence[StepSummary]] = {}
        self._send = send
        self._rounds = StaggeredCredit(options.device, aligned=True)
        self._talker: RemoteTalkerEngine | None = None
        self._codec: CodecClient | None = None
        self._attaching: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def state(self) -> EngineState:
        """What was told, as far as it holds here: who has not been let in yet, or was cut off, cannot speak."""
        if not self.told.speaks or (self._codec is not None and self._codec.ready):
            return self.told
        return EngineState.STARTING

    @property
    def free_slots(self) -> int:
        """None of its own."""
        return 0

    async def start(self) -> None:
        """Nothing: the speech process starts the engine."""

    async def close(self) -> None:
        """As `detach`."""
        self.detach("the gateway's process ends")
        if self._ending:
            await asyncio.wait(self._ending)

    def attach(self, attachment: Attach) -> None:
        """Speak through the engine that this is the way to; the speech process is told when that can be, or why not.

        It may be the one that is spoken through already: then only what was lost of it is found again.
        """
        if self._talker is None or self._talker.address != attachment.reports:
            self.detach("the engine was started anew")
        self._stop_attaching()
        self._attaching = asyncio.create_task(self._attach(attachment), name="attaching")

    async def _attach(self, attachment: Attach) -> None:
        if self._codec is None or not self._codec.ready:
            codec = CodecClient(attachment.codec_slots, attachment.max_job_frames, on_death=self._codec_died)
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    await codec.connect(attachment.codec)
                if self._talker is None:
                    self._talker = RemoteTalkerEngine(attachment, self._send)
            except (OSError, TimeoutError, asyncio.IncompleteReadError, EngineError) as error:
                await codec.close()
                self._tell_lost(f"the engine cannot be reached: {error!r}")
                return
            except asyncio.CancelledError:
                await codec.close()
                raise
            self._drop_codec()
            self._codec = codec
            self.slots = self._talker.shape.slots
        self._send(Attached(None))

    def detach(self, reason: str) -> None:
        """The engine is gone: speeches under way raise EngineLost."""
        self._stop_attaching()
        talker, self._talker = self._talker, None
        if talker is not None:
            talker.lose(reason)
        self._drop_codec()

    def _stop_attaching(self) -> None:
        attaching, self._attaching = self._attaching, None
        if attaching is not None:
            attaching.cancel()
            self._wait_at_the_end(attaching)

    def _drop_codec(self) -> None:
        codec, self._codec = self._codec, None
        if codec is not None:
            self._wait_at_the_end(asyncio.create_task(codec.close()))

    def _wait_at_the_end(self, task: asyncio.Task[None]) -> None:
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def over(self, epoch: int, steps: int | None) -> None:
        """The engine ended a generation."""
        if self._talker is not None:
            self._talker.over(epoch, steps)

    def open(self, request: SpeechRequest, place: LeasedSlots | None = None) -> UtteranceSpeech:
        """Begin an utterance in a place that was lent for it.

        Raises UnknownVoice, UnknownLanguage, UnsupportedOption, EngineNotReady; AtCapacity without a place.
        """
        talker, codec = self._talker, self._codec
        if talker is None or codec is None or not codec.ready:
            raise EngineNotReady("the voice is not ready")
        plan = self._plan(request)
        if place is None:
            raise AtCapacity("no slot was lent")
        return _LeasedSpeech(
            plan,
            self._utterance_text(request),
            self._clock(request),
            partial(talker.open, place.talker),
            codec.open_in(place.codec, paced=request.paced, context=plan.prompt.reference.astype(np.int16)),
            self._rounds.next(paced=request.paced),
            lambda speech: self._pace.update({self._name(request): speech.pace}),
            settled=partial(codec.wait_until_idle, place.codec),
        )

    def _codec_died(self, error: EngineLost) -> None:
        # Gone for everybody, or for this process alone: the speech process knows, and lets it in again.
        self._tell_lost(error.message)

    def _tell_lost(self, why: str) -> None:
        log.error("%s", why)
        self._send(Attached(why))
