"""Pipecat's text-to-speech service on the native protocol, for pipecat-ai 1.14 (extra `pipecat`).

    tts = VoxgateTTSService(url="ws://127.0.0.1:8000", settings=VoxgateTTSService.Settings(voice="michael"))

Tokens of the language model go to the gateway as they come. Each written word becomes a TTSTextFrame at the moment at
which it is spoken, so that after an interruption the conversation's history holds what was heard.
"""

from __future__ import annotations

import asyncio
from collections import deque
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
    Done,
    Event,
    Interrupted,
    Queued,
    Refused,
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
_FAILED_TURNS = 16
_REFUSED_FOR_GOOD = frozenset({401, 403, 404})


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

        `sample_rate` in Hz is by default that of the pipeline's output. `kwargs` are those of TTSService.
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
            **kwargs,
        )
        # A turn that cannot connect has to fail while the caller still waits for it; the next one tries again.
        self._client = Client(url, key=api_key, retry=NO_RETRY)
        self._turns: dict[str, _Turn] = {}
        self._failed: deque[str] = deque(maxlen=_FAILED_TURNS)
        """Newest turns that failed; what is left of their text is not to be spoken."""
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
        if context_id in self._failed:
            yield None  # the rest of a turn that failed
            return
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
        """Runs the utterance of a turn from its first fragment to its end."""
        settings = self._settings
        options: dict[str, Any] = {"voice": settings.voice or None, "language": settings.language or None}
        options |= dict(settings.options) if is_given(settings.options) else {}
        options |= {"format": AudioFormat(sample_rate=self.sample_rate), "words": True}
        try:
            async with self._client.utterance(**options) as utterance:
                turn.utterance = utterance
                feeding = asyncio.create_task(utterance.feed(turn.fragments()), name="voxgate text")
                try:
                    async for event in utterance.events():
                        await self._handle(context_id, turn, event)
                finally:
                    feeding.cancel()
                    await asyncio.gather(feeding, return_exceptions=True)
        except ClientError as failure:
            self._failed.append(context_id)
            permanent = isinstance(failure, Refused) and failure.status in _REFUSED_FOR_GOOD
            await self.append_to_audio_context(context_id, ErrorFrame(error=str(failure), exception=failure))
            if permanent:
                await self.push_error(error_msg=str(failure), exception=failure, force_treat_as_permanent=True)
        finally:
            self._turns.pop(context_id, None)
        if self.audio_context_available(context_id):
            await self.append_to_audio_context(context_id, TTSStoppedFrame(context_id=context_id))
            await self.remove_audio_context(context_id)

    async def _handle(self, context_id: str, turn: _Turn, event: Event) -> None:
        match event:
            case Audio() if event.payload:
                frame = TTSAudioRawFrame(event.payload, self.sample_rate, 1, context_id=context_id)
                self._playback.add(context_id, event.samples / self.sample_rate)
                await self.append_to_audio_context(context_id, frame)
            case Words():
                times = [(word.text, word.start_s) for word in turn.sent.words(event.words)]
                await self.add_word_timestamps(times, context_id)
            case Queued():
                await self._call_event_handler("on_queued", context_id, event.position, event.eta_ms)
            case Done():
                self._playback.complete(context_id)
            case _:
                pass

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
        self.utterance: Utterance | None = None
        self.task: asyncio.Task[None]

    async def fragments(self) -> AsyncGenerator[str, None]:
        """Yields the fragments to send, until the end of the text."""
        while (fragment := await self.unsent.get()) is not None:
            self.sent.append(fragment)
            yield fragment
