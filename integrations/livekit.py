"""LiveKit's text-to-speech plugin on the native protocol, for livekit-agents 1.8 (extra `livekit`).

    speech = livekit.TTS(url="ws://127.0.0.1:8000", voice="michael")
    session = AgentSession(tts=speech, use_tts_aligned_transcript=True)

Tokens of the language model go to the gateway as they come. Each written word is reported with its time, so that after
an interruption the conversation's history holds what was heard.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Literal

from livekit.agents import APIConnectionError, APIError, APIStatusError, tts, utils
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS, APIConnectOptions
from livekit.agents.voice.io import TimedString
from voxgate.client import (
    DEFAULT_URL,
    NO_RETRY,
    Audio,
    AudioFormat,
    Client,
    ClientError,
    Queued,
    Refused,
    SpeechError,
    Words,
)

from .words import SentText

BUSY_STATUS, MISTAKE_STATUS = 503, 400


class TTS(tts.TTS[Literal["queued"]]):
    """Speaks through a voxgate gateway, with one connection for all its streams.

    Emits `queued` with the `voxgate.client.Queued` message while an utterance waits for a talker slot. A refusal is an
    APIStatusError with the gateway's code in `body`; LiveKit tries again those that are `retryable`.
    """

    def __init__(
        self,
        *,
        url: str = DEFAULT_URL,
        api_key: str | None = None,
        voice: str | None = None,
        language: str | None = None,
        sample_rate: int = 24_000,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """`url` is the gateway's ws or http address, `api_key` a key or token where it asks for one.

        `sample_rate` is in Hz. `options` are further options of `voxgate.client.Session.utterance`, such as `seed`.
        """
        capabilities = tts.TTSCapabilities(streaming=True, aligned_transcript=True)
        super().__init__(capabilities=capabilities, sample_rate=sample_rate, num_channels=1)
        # LiveKit repeats what failed, by its own connection options.
        self.client = Client(url, key=api_key, retry=NO_RETRY)
        self._options: dict[str, Any] = {"voice": voice, "language": language, **(options or {})}
        self._streams: weakref.WeakSet[SpeechStream] = weakref.WeakSet()
        self._opening: asyncio.Task[object] | None = None

    @property
    def model(self) -> str:
        """The voice, for metrics."""
        return str(self._options["voice"] or "default")

    @property
    def provider(self) -> str:
        """The service's name in metrics."""
        return "voxgate"

    @property
    def options(self) -> Mapping[str, Any]:
        """Options of the next utterance."""
        return self._options

    def update_options(self, **options: Any) -> None:
        """Changes options of the utterances that follow, such as `voice`."""
        self._options |= options

    def prewarm(self) -> None:
        """Begins to connect, so that the first utterance does not wait for it."""
        self._opening = asyncio.create_task(self._open(), name="voxgate connection")

    async def _open(self) -> None:
        try:
            await self.client.session()
        except ClientError:
            # The utterance will meet the same failure, where it can be raised.
            return

    def synthesize(
        self, text: str, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> tts.ChunkedStream:
        """Speaks a whole text."""
        return self._synthesize_with_stream(text, conn_options=conn_options)

    def stream(self, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS) -> SpeechStream:
        """Returns a stream for one utterance, to which text is pushed as it comes."""
        stream = SpeechStream(self, conn_options)
        self._streams.add(stream)
        return stream

    async def aclose(self) -> None:
        """Ends all streams and the connection."""
        for stream in list(self._streams):
            await stream.aclose()
        if self._opening is not None:
            await utils.aio.cancel_and_wait(self._opening)
        await self.client.__aexit__(None, None, None)


class SpeechStream(tts.SynthesizeStream):
    """One utterance. Closing it before the end, as at an interruption, stops the speech at the gateway."""

    def __init__(self, owner: TTS, conn_options: APIConnectOptions) -> None:
        super().__init__(tts=owner, conn_options=conn_options)
        self._owner = owner

    async def _run(self, output_emitter: tts.AudioEmitter) -> None:
        identity = utils.shortuuid()
        output_emitter.initialize(
            request_id=identity,
            sample_rate=self._owner.sample_rate,
            num_channels=1,
            mime_type="audio/pcm",
            stream=True,
        )
        first = await self._next_fragment()
        if first is None:
            return
        output_emitter.start_segment(segment_id=identity)
        sent = SentText()
        try:
            await self._speak(sent, first, output_emitter)
        except ClientError as failure:
            if not sent.is_silent(failure):
                raise _as_api_error(failure) from failure
            # LiveKit repeats a segment without any audio: 10 ms of silence.
            output_emitter.push(bytes(self._owner.sample_rate // 100 * 2))

    async def _speak(self, sent: SentText, first: str, output_emitter: tts.AudioEmitter) -> None:
        format = AudioFormat(sample_rate=self._owner.sample_rate)
        async with self._owner.client.utterance(**self._owner.options, format=format, words=True) as utterance:
            feeding = asyncio.create_task(utterance.feed(self._fragments(sent, first)), name="voxgate text")
            try:
                async for event in utterance.events():
                    match event:
                        case Audio():
                            output_emitter.push(event.payload)
                        case Words():
                            timed = [
                                TimedString(f"{word.text} ", start_time=word.start_s, end_time=word.end_s)
                                for word in sent.words(event.words)
                            ]
                            output_emitter.push_timed_transcript(timed)
                        case Queued():
                            self._owner.emit("queued", event)
                        case _:
                            pass
            finally:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)

    async def _fragments(self, sent: SentText, first: str) -> AsyncGenerator[str, None]:
        """Yields `first` and the fragments that follow, until the end of the segment."""
        fragment: str | None = first
        while fragment is not None:
            self._mark_started()
            sent.append(fragment)
            yield fragment
            fragment = await self._next_fragment()

    async def _next_fragment(self) -> str | None:
        """The next fragment of the segment; None at its end, which is a flush or the end of the input."""
        async for fragment in self._input_ch:
            return fragment if isinstance(fragment, str) else None
        return None


def _as_api_error(failure: ClientError) -> APIError:
    """The framework's error for one of the gateway's."""
    match failure:
        case Refused():
            body = {"code": failure.code, "retry_after_ms": failure.retry_after_ms}
            return APIStatusError(failure.message, status_code=failure.status, body=body)
        case SpeechError():
            status = BUSY_STATUS if failure.retryable else MISTAKE_STATUS
            body = {"code": failure.code, "retry_after_ms": failure.retry_after_ms, "param": failure.param}
            return APIStatusError(failure.message, status_code=status, body=body, retryable=failure.retryable)
        case _:
            return APIConnectionError(str(failure), retryable=failure.retryable)
