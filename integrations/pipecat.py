"""Pipecat's text-to-speech service on the native protocol, for pipecat-ai 1.14 (extra `pipecat`).

    tts = VoxgateTTSService(url="ws://127.0.0.1:8000", settings=VoxgateTTSService.Settings(voice="michael"))

Tokens of the language model go to the gateway as they come. Each written word becomes a TTSTextFrame at the moment at
which it is spoken, so that after an interruption the conversation's history holds what was heard.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipecat.frames.frames import (
    BotSpeakingFrame,
    BotStartedSpeakingFrame,
    BotStoppedSpeakingFrame,
    CancelFrame,
    EndFrame,
    ErrorFrame,
    Frame,
    TTSAudioRawFrame,
    TTSStoppedFrame,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessorSetup
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TextAggregationMode, TTSService
from pipecat.transcriptions.language import Language
from pipecat.utils.types import NOT_GIVEN, NotGiven, is_given
from voxgate.client import (
    DEFAULT_URL,
    NO_RETRY,
    Audio,
    AudioFormat,
    Client,
    ClientError,
    Event,
    Interrupted,
    Queued,
    Utterance,
    Words,
)

from .playback import TurnPlayback
from .words import SentText

MAX_UNSENT = 1024
"""Fragments of one turn that wait for the connection; `run_tts` then waits too."""
LANGUAGES = {
    "zh": "chinese", "en": "english", "ja": "japanese", "ko": "korean", "de": "german", "fr": "french",
    "ru": "russian", "pt": "portuguese", "es": "spanish", "it": "italian",
}  # fmt: skip  # two columns of the family's languages


@dataclass
class VoxgateTTSSettings(TTSSettings):
    """`voice` and `language` of TTSSettings, and `options`: further options of `Session.utterance`, such as `seed`."""

    options: Mapping[str, Any] | NotGiven = field(default_factory=lambda: NOT_GIVEN)


class VoxgateTTSService(TTSService):
    """Speaks through a voxgate gateway.

    Events: `on_connected`, `on_disconnected`, `on_connection_error` as of every service; `on_queued(service,
    context_id, position, eta_ms)` while a turn waits for a talker slot; `on_interrupted(service, context_id,
    text_spoken, text_remaining)` when the gateway has answered an interruption: both texts joined are the text sent.
    """

    Settings = VoxgateTTSSettings
    _settings: VoxgateTTSSettings

    def __init__(
        self,
        *,
        url: str = DEFAULT_URL,
        api_key: str | None = None,
        sample_rate: int | None = None,
        text_aggregation_mode: TextAggregationMode = TextAggregationMode.TOKEN,
        settings: VoxgateTTSSettings | None = None,
        **kwargs: Any,
    ) -> None:
        """`url` is the gateway's ws or http address, `api_key` a key or token where it asks for one.

        `sample_rate` in Hz is by default that of the pipeline's output. `kwargs` are those of TTSService;
        `max_consecutive_zero_audio_contexts` is by default 0: after a restart of the gateway the next turn speaks.
        """
        chosen = VoxgateTTSSettings(model=None, voice=None, language=None, options={})
        if settings is not None:
            chosen.apply_update(settings)
        super().__init__(
            sample_rate=sample_rate,
            text_aggregation_mode=text_aggregation_mode,
            push_text_frames=False,
            push_start_frame=True,
            settings=chosen,
            **{"max_consecutive_zero_audio_contexts": 0} | kwargs,
        )
        # A turn that cannot connect has to fail while the caller still waits for it; the next one tries again.
        self._client = Client(url, key=api_key, retry=NO_RETRY)
        self._turns: dict[str, _Turn] = {}
        self._failed: set[str] = set()
        """Turns that failed, until their audio contexts end: the rest of their text is not spoken."""
        self._playback = TurnPlayback()
        self._answering: set[asyncio.Task[None]] = set()
        self._register_event_handler("on_queued")
        self._register_event_handler("on_interrupted")

    def can_generate_metrics(self) -> bool:
        """Returns True: the time to the first byte and the characters spoken are measured."""
        return True

    def language_to_service_language(self, language: Language) -> str | None:
        """Returns the gateway's name of the language, without the region; None for one that no model speaks."""
        return LANGUAGES.get(str(language).partition("-")[0].lower())

    # Life of the service

    async def setup(self, setup: FrameProcessorSetup) -> None:
        """Connects, so that the first turn does not wait for it; a failure is reported and tried again at the turn."""
        await super().setup(setup)
        try:
            await self._client.session()
        except ClientError as failure:
            await self._call_event_handler("on_connection_error", str(failure))
            await self.push_error(error_msg=str(failure), exception=failure)
        else:
            await self._call_event_handler("on_connected")

    async def stop(self, frame: EndFrame) -> None:
        """Ends after all speech has been played."""
        await super().stop(frame)
        await self._disconnect()

    async def cancel(self, frame: CancelFrame) -> None:
        """Ends at once."""
        await super().cancel(frame)
        await self._disconnect()

    async def cleanup(self) -> None:
        """Ends what `stop` or `cancel` have left."""
        await super().cleanup()
        await self._disconnect()

    async def _disconnect(self) -> None:
        for turn in list(self._turns.values()):
            await self.cancel_task(turn.task)
        self._turns.clear()
        for answer in tuple(self._answering):
            await self.cancel_task(answer)
        await self._client.__aexit__(None, None, None)
        await self._call_event_handler("on_disconnected")

    # Text

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        """Sends a fragment of the turn `context_id`; its audio follows through the turn's audio context."""
        turn = self._turns.get(context_id)
        if turn is None:
            turn = self._turns[context_id] = _Turn()
            turn.task = self.create_task(self._speak(context_id, turn))
        await turn.unsent.put(text)
        await self.start_tts_usage_metrics(text)
        yield None

    async def flush_audio(self, context_id: str | None = None) -> None:
        """Ends the turn's text."""
        turn = self._turns.get(context_id or self.get_active_audio_context_id() or "")
        if turn is not None:
            await turn.unsent.put(None)

    # Speech

    async def _speak(self, context_id: str, turn: _Turn) -> None:
        """Runs a turn from its first fragment to its end. One that fails reads its text to the end, to fail once."""
        waiting = asyncio.create_task(self._keep_open(context_id), name="voxgate context")
        try:
            await self._run_utterance(context_id, turn)
        except ClientError as failure:
            waiting.cancel()
            turn.utterance = None
            frame: Frame = ErrorFrame(error=str(failure), exception=failure)
            if turn.sent.is_silent(failure):
                # Pipecat reports a turn without audio frames as an error; transports skip an empty one.
                frame = TTSAudioRawFrame(b"", self.sample_rate, 1, context_id=context_id)
            else:
                self._failed.add(context_id)
            await self.append_to_audio_context(context_id, frame)
            async for _ in turn.fragments():
                pass
        finally:
            waiting.cancel()
            self._turns.pop(context_id, None)
            self._playback.complete(context_id)
            if not self.audio_context_available(context_id):
                self._failed.discard(context_id)
        if self.audio_context_available(context_id):
            await self.append_to_audio_context(context_id, TTSStoppedFrame(context_id=context_id))
            await self.remove_audio_context(context_id)

    async def _keep_open(self, context_id: str) -> None:
        """Keeps Pipecat from ending a turn whose audio waits for a slot, the network or the language model."""
        while True:
            await asyncio.sleep(self._stop_frame_timeout_s / 3)
            self._refresh_audio_context(context_id)

    async def _run_utterance(self, context_id: str, turn: _Turn) -> None:
        settings = self._settings
        options: dict[str, Any] = {"voice": settings.voice or None, "language": settings.language or None}
        options |= dict(settings.options) if is_given(settings.options) else {}
        options |= {"format": AudioFormat(sample_rate=self.sample_rate), "words": True}
        async with self._client.utterance(**options) as utterance:
            turn.utterance = utterance
            feeding = asyncio.create_task(utterance.feed(turn.fragments()), name="voxgate text")
            try:
                async for event in utterance.events():
                    await self._handle(context_id, turn, event)
            finally:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)

    async def _apply_force_complete(self, context_id: str) -> None:
        """Counts words without times as heard, as every service, but not those of a turn that failed."""
        if context_id in self._failed:
            self._aggregated_frame_sequencer.clear(keep_contexts=set(self._tts_contexts) - {context_id})
        else:
            await super()._apply_force_complete(context_id)

    async def on_audio_context_completed(self, context_id: str) -> None:
        """Forgets a failure."""
        self._failed.discard(context_id)
        await super().on_audio_context_completed(context_id)

    async def _handle(self, context_id: str, turn: _Turn, event: Event) -> None:
        if context_id not in self._turns:
            return  # interrupted; the gateway has not answered yet
        match event:
            case Audio() if event.payload:
                frame = TTSAudioRawFrame(event.payload, self.sample_rate, 1, context_id=context_id)
                now_s = asyncio.get_running_loop().time()
                self._playback.add(context_id, event.samples / self.sample_rate, now_s)
                await self.append_to_audio_context(context_id, frame)
                turn.audio_s += event.samples / self.sample_rate
                await self._add_words(context_id, turn)
            case Words():
                turn.sent.hold(event.words)
                await self._add_words(context_id, turn)
            case Queued():
                await self._call_event_handler("on_queued", context_id, event.position, event.eta_ms)
            case _:
                pass

    async def _add_words(self, context_id: str, turn: _Turn) -> None:
        late_s = self._playback.late_s[context_id]
        times = [(word.text, word.start_s + late_s) for word in turn.sent.take(turn.audio_s)]
        await self.add_word_timestamps(times, context_id)

    # TurnPlayback

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Does what every service does, and follows the transport's reports of playback."""
        await super().process_frame(frame, direction)
        now_s = asyncio.get_running_loop().time()
        match frame:
            case BotStartedSpeakingFrame():
                self._playback.start(now_s)
            case BotStoppedSpeakingFrame():
                self._playback.stop()
            case BotSpeakingFrame():
                await self._acknowledge(now_s)

    async def _acknowledge(self, now_s: float) -> None:
        """Reports the playback position to the gateway, so that audio waits there when it is not being played."""
        for context_id, turn in list(self._turns.items()):
            played_s = self._playback.played_s(context_id, now_s)
            if turn.utterance is not None and played_s:
                await turn.utterance.ack(int(played_s * self.sample_rate))

    async def on_audio_context_interrupted(self, context_id: str) -> None:
        """Stops the turn's speech at the playback position; `on_interrupted` follows with the gateway's answer."""
        await self.stop_all_metrics()
        self._failed.discard(context_id)
        turn = self._turns.pop(context_id, None)
        played_s = self._playback.played_s(context_id, asyncio.get_running_loop().time())
        self._playback.forget(context_id)
        if turn is not None:
            answer = self.create_task(self._interrupt(context_id, turn, int(1000 * played_s)))
            self._answering.add(answer)
            answer.add_done_callback(self._answering.discard)
        await super().on_audio_context_interrupted(context_id)

    async def _interrupt(self, context_id: str, turn: _Turn, played_ms: int) -> None:
        interrupted: Interrupted | None = None
        if turn.utterance is not None:
            try:
                interrupted = await turn.utterance.interrupt(played_ms)
            except (ClientError, TimeoutError) as failure:
                await self.push_error(error_msg=f"the interruption was not answered: {failure}", exception=failure)
        await self.cancel_task(turn.task)
        if interrupted is not None:
            answer = (interrupted.text_spoken, interrupted.text_remaining)
            await self._call_event_handler("on_interrupted", context_id, *answer)


class _Turn:
    """One turn of the assistant, an utterance at the gateway."""

    def __init__(self) -> None:
        self.unsent: asyncio.Queue[str | None] = asyncio.Queue(MAX_UNSENT)
        """Fragments to send; None is the end."""
        self.sent = SentText()
        self.audio_s = 0.0
        self.ended = False
        self.utterance: Utterance | None = None
        self.task: asyncio.Task[None]

    async def fragments(self) -> AsyncGenerator[str, None]:
        """Yields the fragments to send, until the end of the text."""
        while not self.ended:
            fragment = await self.unsent.get()
            self.ended = fragment is None
            if fragment is not None:
                self.sent.append(fragment)
                yield fragment
