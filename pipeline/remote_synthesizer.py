"""The voice model in a process that shares the speech process's engine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from .codec.client import CodecClient
from .codec.stream import CodecContext
from .credit import StaggeredCredit
from .errors import EngineError, EngineLost, EngineNotReady
from .interface import EngineState, LeasedSlots
from .ipc.engine_messages import Attach, Attached, Message
from .step_times import StepSummary
from .talker.remote_engine import RemoteTalkerEngine
from .utterance.plan import SpeechSlots
from .utterance.speech import UtteranceSpeech
from .voice_model import PreparedUtterance, SynthesizerOptions, VoiceModel

CONNECT_TIMEOUT_S = 10.0
"""Seconds for connecting to the codec, which is ready before an attachment is sent."""

log = logging.getLogger(__name__)


class RemoteSynthesizer(VoiceModel):
    """A `Synthesizer` whose slots are leased from the speech process; `send` sends that process a message.

    It is usable between `attach` and `detach`; `start` does nothing. `reported_state`: the engine's state as the
    speech process last reported it.
    """

    def __init__(self, folder: Path, options: SynthesizerOptions, send: Callable[[Message], None]) -> None:
        super().__init__(folder, options)
        self.slots = self.capacity = options.slots or 1
        self.reported_state = EngineState.STARTING
        self.capacity_changes: Mapping[str, int] = {}
        self.step_times: Mapping[str, Sequence[StepSummary]] = {}
        self._send = send
        self._rounds = StaggeredCredit(options.device, aligned=True)
        self._talker: RemoteTalkerEngine | None = None
        self._codec: CodecClient | None = None
        self._attaching: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def state(self) -> EngineState:
        """The reported state; STARTING while the engine runs and this process is not attached to it."""
        if not self.reported_state.speaks or (self._codec is not None and self._codec.ready):
            return self.reported_state
        return EngineState.STARTING

    @property
    def free_slots(self) -> int:
        """0: this process has no slots of its own."""
        return 0

    async def start(self) -> None:
        """Does nothing: the speech process starts the engine."""

    async def close(self) -> None:
        """Detaches; returns when everything is closed."""
        self.detach("the gateway's process ends")
        if self._closing:
            await asyncio.wait(self._closing)

    def attach(self, attachment: Attach, on_attached: Callable[[], None]) -> None:
        """Connects to an engine; the result is sent to the speech process (`Attached`), and success to `on_attached`.

        For the engine that this process is attached to already, only lost connections are restored.
        """
        if self._talker is None or self._talker.address != attachment.reports:
            self.detach("the engine was restarted")
        self._stop_attaching()
        self._attaching = asyncio.create_task(self._attach(attachment, on_attached), name="attaching")

    async def _attach(self, attachment: Attach, on_attached: Callable[[], None]) -> None:
        def report_loss(reason: str) -> None:
            log.error("%s", reason)
            self._send(Attached(attachment.reports, reason))

        def on_codec_death(error: EngineLost) -> None:
            # Whether it died or only this connection, the speech process knows; it sends an attachment again.
            if codec is self._codec:
                report_loss(error.message)

        def on_talker_loss(reason: str) -> None:
            self.detach(reason)
            report_loss(reason)

        if self._codec is None or not self._codec.ready:
            codec = CodecClient(attachment.codec_slots, attachment.max_job_frames, on_death=on_codec_death)
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    await codec.connect(attachment.codec)
                if self._talker is None:
                    self._talker = RemoteTalkerEngine(attachment, self._send, on_talker_loss)
            except (OSError, TimeoutError, asyncio.IncompleteReadError, EngineError) as error:
                await codec.close()
                report_loss(f"the engine cannot be reached: {error!r}")
                return
            except asyncio.CancelledError:
                await codec.close()
                raise
            self._drop_codec()
            self._codec = codec
            self.slots = self._talker.shape.slots
        self._send(Attached(attachment.reports, None))
        on_attached()

    def detach(self, reason: str) -> None:
        """Ends the use of the engine, for `reason`: running speeches are lost."""
        self._stop_attaching()
        talker, self._talker = self._talker, None
        if talker is not None:
            talker.lose(reason)
        self._drop_codec()

    def _stop_attaching(self) -> None:
        attaching, self._attaching = self._attaching, None
        if attaching is not None:
            attaching.cancel()
            self._await_at_close(attaching)

    def _drop_codec(self) -> None:
        codec, self._codec = self._codec, None
        if codec is not None:
            self._await_at_close(asyncio.create_task(codec.close()))

    def _await_at_close(self, task: asyncio.Task[None]) -> None:
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def end(self, epoch: int, steps: int | None) -> None:
        """The speech process reports that the engine ended a generation (`GenerationEnded`)."""
        if self._talker is not None:
            self._talker.end(epoch, steps)

    def expect_utterance(self) -> None:
        """As `Synthesizer.expect_utterance`."""
        if self._talker is not None:
            self._talker.expect_utterance()

    def _begin(self, prepared: PreparedUtterance, place: LeasedSlots | None) -> UtteranceSpeech:
        """Begins an utterance in leased slots. Raises EngineNotReady, also without slots."""
        self._check_ready()
        paced = prepared.request.paced
        return self._begin_speech(
            prepared,
            place=place,
            take_slots=lambda leased, context: self._take_slots(leased, context, paced=paced),
            credit=self._rounds.next(paced=paced),
        )

    def _check_ready(self) -> tuple[RemoteTalkerEngine, CodecClient]:
        if self._talker is None or self._codec is None or not self._codec.ready:
            raise EngineNotReady("the voice is not ready")
        return self._talker, self._codec

    def _take_slots(self, place: LeasedSlots | None, context: CodecContext, *, paced: bool) -> SpeechSlots:
        talker, codec = self._check_ready()
        if place is None:
            raise EngineNotReady("no slot is leased for the utterance")
        talker.reserve(place.talker, place.take_prompt_row())
        return SpeechSlots(
            partial(talker.open, place.talker),
            codec.open_in(place.codec, paced=paced, context=context),
            # Another process may get the slot next.
            after_close=partial(codec.wait_until_idle, place.codec),
        )
