"""Speech of one utterance with real text processing, over an engine and a codec without a model."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from fakes.pipeline.echo_engine import END_OF_TEXT, EchoEngine
from numpy.typing import NDArray
from voxgate.codecs.pcm import FRAME_SAMPLES
from voxgate.pipeline.alignment.visemes import CodeVisemes
from voxgate.pipeline.alignment.word_timing import WordAligner, WordTiming
from voxgate.pipeline.checkpoint.voice_config import FrameLimits, TextRules, VoiceConfig
from voxgate.pipeline.code_log import CodeLog
from voxgate.pipeline.codec.stream import CodecContext, TakeFirstFrame
from voxgate.pipeline.credit import CreditRounds
from voxgate.pipeline.errors import EngineLost, VoxgateError
from voxgate.pipeline.interface import NATURAL, LeasedSlots, MarkupDialect, Prosody, SpeechChunk, TextLayout
from voxgate.pipeline.talker.generation import Sampling
from voxgate.pipeline.talker.prompt import Prompt
from voxgate.pipeline.text.lexicon.filter import make_text_filter
from voxgate.pipeline.text.lexicon.lexicon import Lexicon
from voxgate.pipeline.text.text_turns import TextTurns
from voxgate.pipeline.text.tokenizer import TextTokenizer
from voxgate.pipeline.text.utterance_text import UtteranceText
from voxgate.pipeline.utterance.plan import SpeechSlots, UtterancePlan
from voxgate.pipeline.utterance.read_ahead import ReadAhead
from voxgate.pipeline.utterance.speech import UtteranceSpeech

PROMPT = Prompt(
    text=(1, 5),
    head=np.array([[-1] * 16, [512] + [-1] * 15], np.int32),
    context=np.array([[513] + [-1] * 15], np.int32),
    layout=TextLayout.STREAMING,
    filler=512,
)
SAMPLING = Sampling(0.6, 50, 1.0, 1.0, 0.6, 50, 1.0, 1000)
STORY = "one two three. four five six! seven eight. nine ten eleven twelve?"


def frame_level(number: int, codes: list[int]) -> float:  # noqa: ARG001 - the signature of levels
    """A level that tells the number of the frame; `audio_frames` reads it back."""
    return number / 1000 + 0.1


class FakeCodec:
    """A codec stream that turns each frame into 80 ms of one level, at most `chunk` frames at a time.

    `level`: the level of a frame, by its number and its codes.
    """

    def __init__(self, chunk: int = 3, level: Callable[[int, list[int]], float] = frame_level) -> None:
        self.frames: list[list[int]] = []
        """All frames of the utterance, in this stream and those before it."""
        self.delivered = 0
        """Of these, frames whose audio was returned."""
        self.context_frames = 5
        self.slot: int | None = None
        """The codec slot for the first frame, where the engine may decode that."""
        self.decoded: list[int] = []
        """Numbers of the frames that came decoded."""
        self.sounds: list[NDArray[np.float32]] = []
        self.heard: list[int] = []
        """Frames played, as they were reported."""
        self.closed = 0
        self.finished = False
        self.error: VoxgateError | None = None
        self.silent: Callable[[int], bool] = lambda number: False  # noqa: ARG005 - of a frame's number
        self._chunk, self._level = chunk, level
        self._levels: deque[float] = deque()
        self._news = asyncio.Event()
        self._woken = False

    def offer_first_frame(self, take: TakeFirstFrame) -> None:
        if not self.frames and self.slot is not None:
            take(self.slot, True)

    def push_pcm(self, pcm: NDArray[np.float32]) -> None:
        self.sounds.append(pcm)

    def push(self, codes: NDArray[np.int16], *, decoded: bool = False) -> None:
        assert not self.finished
        self.decoded += [len(self.frames)] * decoded
        for frame in codes.tolist():
            number = len(self.frames)
            self._levels.append(0.0 if self.silent(number) else self._level(number, frame))
            self.frames.append(frame)
        self._news.set()

    def finish(self) -> None:
        self.finished = True
        self._news.set()

    def wake(self) -> None:
        self._woken = True
        self._news.set()

    def die(self) -> None:
        """Lose the codec with the frames that it has not decoded."""
        self._levels.clear()
        self.fail(EngineLost("the codec worker died"))

    def follow(self, before: FakeCodec, context: CodecContext) -> None:
        """Go on behind the frames that another stream has delivered."""
        self.frames, self.delivered = before.frames[: before.delivered], before.delivered
        frames = [*context.shared.tolist(), *context.own.tolist()]
        assert frames == self.frames[len(self.frames) - len(frames) :]
        assert len(frames) >= min(self.context_frames, self.delivered)

    def fail(self, error: VoxgateError) -> None:
        """Let the stream fail behind the frames that it has."""
        self.error = error
        self._news.set()

    def advance(self, frames_heard: int) -> None:
        self.heard.append(frames_heard)

    async def __anext__(self) -> NDArray[np.float32]:
        while not self._levels:
            if self.error is not None:
                raise self.error
            if self._woken:
                self._woken = False
                return np.zeros(0, np.float32)
            if self.finished or self.closed:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        levels = [self._levels.popleft() for _ in range(min(self._chunk, len(self._levels)))]
        self.delivered += len(levels)
        return np.repeat(np.float32(levels), FRAME_SAMPLES)

    async def aclose(self) -> None:
        self.closed += 1
        self._news.set()


class SpeechBench:
    """A speech over a fake engine and a fake codec."""

    def __init__(
        self,
        tokenizer: TextTokenizer,
        *,
        rules: TextRules | None = None,
        limits: FrameLimits | None = None,
        engine: EchoEngine | None = None,
        max_frames: int | None = None,
        lookahead_frames: int = 10_000,
        max_characters: int = 1000,
        trim_silence: bool = False,
        paced: bool = True,
        initial_burst_frames: int | None = None,
        frames_before_first_pcm: int | None = None,
        prompt: Prompt = PROMPT,
        normalise: str | None = None,
        text_turns: TextTurns | None = None,
        timing: WordTiming | None = None,
        markup: Iterable[MarkupDialect] = (),
        prosody: Prosody = NATURAL,
        lexica: Sequence[Lexicon] = (),
        visemes: CodeVisemes | None = None,
        codes: CodeLog | None = None,
        beginning: str = "",
    ) -> None:
        """`beginning`: text that is read ahead of the speech, which gets it first."""
        rules = rules or TextRules()
        self.engine = engine or EchoEngine()
        self.codec = FakeCodec()
        self.tokenizer = tokenizer
        self.over: list[UtteranceSpeech] = []
        file = VoiceConfig(text=rules, limits=limits or FrameLimits())
        plan = UtterancePlan(
            prompt,
            SAMPLING,
            max_frames,
            lookahead_frames,
            file,
            paced,
            trim_silence,
            initial_burst_frames,
            frames_before_first_pcm,
            prosody,
            codes or CodeLog(),
        )
        text = UtteranceText(rules, tokenizer, max_characters, normalise)
        text_filter = make_text_filter(markup, lexica, prosody)
        self.speech = UtteranceSpeech(
            plan,
            text=text,
            timing=timing or WordAligner(),
            slots=SpeechSlots(self.engine.open, self.codec),
            take_slots=self._take_slots,
            credit=CreditRounds(0.0),
            on_end=self.over.append,
            text_turns=text_turns,
            text_filter=text_filter,
            read_ahead=ReadAhead.of(beginning, text_filter, text),
            visemes=visemes,
        )

    def _take_slots(self, place: LeasedSlots | None, context: CodecContext) -> SpeechSlots:  # noqa: ARG002 - one engine
        """Slots for a speech that goes on; its new codec has the frames of all before it."""
        before, self.codec = self.codec, FakeCodec()
        self.codec.follow(before, context)
        return SpeechSlots(self.engine.open, self.codec)

    async def __aenter__(self) -> SpeechBench:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.speech.aclose()

    async def listen(self) -> list[SpeechChunk]:
        return [chunk async for chunk in self.speech]

    async def say(self, text: str) -> list[SpeechChunk]:
        self.speech.push_text(text)
        self.speech.end()
        return await self.listen()

    def segments(self) -> list[str]:
        """The text that each finished generation has read."""
        return [self.tokenizer.tokenizer.decode(ids).strip() for ids in self.engine.texts]

    def spoken(self) -> list[int]:
        """The text tokens of the frames, in the order in which the listener receives them."""
        return [frame[0] for frame in self.codec.frames if frame[0] < END_OF_TEXT]


def audio_frames(chunks: list[SpeechChunk]) -> list[int]:
    """The number of each received frame, read from the level of its audio."""
    pcm = np.concatenate([chunk.pcm for chunk in chunks])
    return [round((float(value) - 0.1) * 1000) for value in pcm[::FRAME_SAMPLES]]
