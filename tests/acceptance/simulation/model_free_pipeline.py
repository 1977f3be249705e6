"""The real pipeline under simulation: text, talker slots and credit, over an engine and a codec without a model."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from fakes.pipeline.echo_engine import EchoEngine
from fakes.pipeline.speech_bench import PROMPT
from numpy.typing import NDArray
from voxgate.codecs.pcm import FRAME_SAMPLES, Pcm
from voxgate.pipeline.alignment.word_timing import WordAligner
from voxgate.pipeline.credit import CreditRounds
from voxgate.pipeline.errors import AtCapacity, EngineNotReady, GenerationFailed
from voxgate.pipeline.interface import EngineState, SpeechRequest, VoiceInfo
from voxgate.pipeline.step_times import StepSummary
from voxgate.pipeline.talker.generation import Sampling
from voxgate.pipeline.text.tokenizer import TextTokenizer, load_tokenizer
from voxgate.pipeline.text.utterance_text import UtteranceText
from voxgate.pipeline.utterance import UtterancePlan, UtteranceSpeech
from voxgate.pipeline.voice_config import TextRules, VoiceConfig

DEMO = Path(__file__).parents[3] / "voices" / "demo"
SAMPLING = Sampling(0.6, 50, 1.0, 1.0, 0.6, 50, 1.0, 0)
SEGMENT_TOKENS = 12
"""A new generation begins at a sentence's end after so many: few, so that utterances have several."""
UNHURRIED = 10**6
Said = Sequence[str | None]
"""Fragments as the client sent them, None for a flush."""


@cache
def _tokenizer() -> TextTokenizer:
    return load_tokenizer(DEMO)


class LevelCodec:
    """A codec stream whose frames are flat: the level tells the token, the seed, and which frame of all it is."""

    def __init__(self, seed: int, chunk_frames: int) -> None:
        self.broken: Exception | None = None
        self._seed = seed
        self._chunk_frames = chunk_frames
        self._number = 0
        self._waiting: deque[float] = deque()
        self._over = False
        self._news = asyncio.Event()

    @property
    def beginning(self) -> int | None:
        """Nobody else decodes the first frame."""
        return None

    def push(self, codes: NDArray[np.int16], *, decoded: bool = False) -> None:
        assert not decoded
        for token in codes[:, 0].tolist():
            self._waiting.append(0.1 + (token * 37 + self._seed * 101 + self._number * 13) % 8000 / 10_000)
            self._number += 1
        self._news.set()

    def hear(self, pcm: Pcm) -> None:
        raise NotImplementedError("no frame comes decoded")

    def finish(self) -> None:
        self._over = True
        self._news.set()

    def advance(self, frames_heard: int) -> None:
        assert frames_heard <= max(self._number, UNHURRIED)

    def fail(self, error: Exception) -> None:
        self.broken = error
        self._news.set()

    async def __anext__(self) -> Pcm:
        while not self._waiting:
            if self.broken is not None:
                raise self.broken
            if self._over:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        levels = [self._waiting.popleft() for _ in range(min(self._chunk_frames, len(self._waiting)))]
        return np.repeat(np.float32(levels), FRAME_SAMPLES)

    async def aclose(self) -> None:
        self.finish()


class ModelFreePipeline:
    """A `Synthesizer` of real `UtteranceSpeech`es; the engine can die under them, and one can fail alone."""

    default_voice = "ada"
    max_characters = 2000

    def __init__(self, *, slots: int, frame_s: float = 0.0, start_s: float = 0.0, chunk_frames: int = 2) -> None:
        self.voices: Mapping[str, VoiceInfo] = {"ada": VoiceInfo("ada", ("auto", "english"), "levels")}
        self.slots = self.capacity = slots
        self.step_times: Mapping[str, Sequence[StepSummary]] = {}
        self.open_speeches: dict[UtteranceSpeech, LevelCodec] = {}
        self._frame_s, self._start_s, self._chunk_frames = frame_s, start_s, chunk_frames
        self._rounds = CreditRounds()
        self._engine: EchoEngine
        self._state = EngineState.STARTING

    @property
    def state(self) -> EngineState:
        return self._state

    @property
    def free_slots(self) -> int:
        # An utterance between two generations holds no slot and must find one.
        return len(self._engine.free_slots) - sum(not speech.holds_slot for speech in self.open_speeches)

    async def start(self) -> None:
        self._state = EngineState.STARTING
        await asyncio.sleep(self._start_s)
        self._engine = EchoEngine(slots=self.slots, frame_s=self._frame_s)
        self._state = EngineState.READY

    async def close(self) -> None:
        self.lose()

    def lose(self) -> None:
        """The engine dies."""
        self._state = EngineState.DEAD
        self._engine.die()

    def fail_one(self, number: int) -> None:
        """The codec gives up on one of the speeches."""
        if codecs := list(self.open_speeches.values()):
            codecs[number % len(codecs)].fail(GenerationFailed("this one alone"))

    def open(self, request: SpeechRequest) -> UtteranceSpeech:
        if not self._state.speaks:
            raise EngineNotReady("not ready", retry_after_ms=1000)
        if self.free_slots <= 0:
            raise AtCapacity("no slot")
        seed = request.seed or 0
        codec = LevelCodec(seed, self._chunk_frames)
        rules = VoiceConfig(text=TextRules(segment_tokens=SEGMENT_TOKENS))
        speech = UtteranceSpeech(
            UtterancePlan(PROMPT, replace(SAMPLING, seed=seed), request.max_frames, lookahead_frames=25, rules=rules),
            UtteranceText(rules.text, _tokenizer(), self.max_characters),
            WordAligner(),
            self._engine.open,
            codec,
            self._rounds,
            lambda speech: self.open_speeches.pop(speech, None) and None,
        )
        self.open_speeches[speech] = codec
        return speech


async def offline(said: Said, seed: int) -> Pcm:
    """The same text spoken alone, as fast as it goes."""
    voice = ModelFreePipeline(slots=1, chunk_frames=100)
    await voice.start()
    speech = voice.open(SpeechRequest(voice="ada", seed=seed))
    speech.advance(UNHURRIED)
    for fragment in said:
        if fragment is None:
            speech.flush()
        else:
            speech.push_text(fragment)
    speech.end()
    chunks = [chunk.pcm async for chunk in speech]
    await speech.aclose()
    return np.concatenate(chunks)
