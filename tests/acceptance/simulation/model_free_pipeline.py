"""The real pipeline for simulations: text, talker slots and credit over an engine and a codec without a model."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from fakes.pipeline.echo_engine import EchoEngine
from fakes.pipeline.speech_bench import PROMPT, FakeCodec
from numpy.typing import NDArray
from voxgate.codecs.pcm import Pcm
from voxgate.pipeline.alignment.word_timing import WordAligner
from voxgate.pipeline.checkpoint.voice_config import TextRules, VoiceConfig
from voxgate.pipeline.code_log import CodeLog
from voxgate.pipeline.credit import CreditRounds
from voxgate.pipeline.errors import AtCapacity, EngineNotReady, GenerationFailed
from voxgate.pipeline.interface import EngineState, LeasedSlots, SpeechRequest, VoiceInfo
from voxgate.pipeline.step_times import StepSummary
from voxgate.pipeline.talker.generation import Sampling
from voxgate.pipeline.text.tokenizer import TextTokenizer, load_tokenizer
from voxgate.pipeline.text.utterance_text import UtteranceText
from voxgate.pipeline.utterance.plan import SpeechSlots, UtterancePlan
from voxgate.pipeline.utterance.speech import UtteranceSpeech

DEMO = Path(__file__).parents[3] / "voices" / "demo"
SAMPLING = Sampling(0.6, 50, 1.0, 1.0, 0.6, 50, 1.0, 0)
SEGMENT_TOKENS = 12
"""Tokens after which a new generation starts at the end of a sentence: few, so that utterances have several."""
TOKEN_VISEMES = np.repeat(np.arange(2**15, dtype=np.uint8)[:, None] % 15, 4, axis=1)
"""A text token has the same mouth shape in all four hops of its frames."""
UNPACED_FRAMES = 10**6
"""Credit for speech that is not played in real time."""
SentText = Sequence[str | None]
"""Fragments as the client sent them; None stands for a flush."""


@cache
def _tokenizer() -> TextTokenizer:
    return load_tokenizer(DEMO)


class ModelFreePipeline:
    """A `Synthesizer` of real `UtteranceSpeech` objects; `lose` kills their engine, `fail_one` fails one of them.

    The level of a frame tells its token, the seed of the utterance, and the number of the frame.
    """

    default_voice = "ada"
    identity = "levels"
    max_characters = 2000

    def __init__(self, *, slots: int, frame_s: float = 0.0, start_s: float = 0.0, chunk_frames: int = 2) -> None:
        self.voices: Mapping[str, VoiceInfo] = {"ada": VoiceInfo("ada", ("auto", "english"), "levels", visemes=True)}
        self.slots = self.capacity = slots
        self.capacity_changes: Mapping[str, int] = {}
        self.step_times: Mapping[str, Sequence[StepSummary]] = {}
        self.open_speeches: dict[UtteranceSpeech, FakeCodec] = {}
        self._frame_s, self._start_s, self._chunk_frames = frame_s, start_s, chunk_frames
        self._rounds = CreditRounds()
        self._engine: EchoEngine
        self._state = EngineState.STARTING

    @property
    def state(self) -> EngineState:
        return self._state

    @property
    def start_progress(self) -> str:
        return ""

    @property
    def free_slots(self) -> int:
        # An utterance between two generations holds no slot and must find one.
        due = sum(not (speech.holds_slot or speech.suspended) for speech in self.open_speeches)
        return len(self._engine.free_slots) - due

    async def start(self) -> None:
        self._state = EngineState.STARTING
        await asyncio.sleep(self._start_s)
        self._engine = EchoEngine(slots=self.slots, frame_s=self._frame_s)
        self._state = EngineState.READY

    async def close(self) -> None:
        self.lose()

    def lose(self) -> None:
        """Kill the engine and the codec."""
        self._state = EngineState.DEAD
        self._engine.die()
        for codec in self.open_speeches.values():
            codec.die()

    def fail_one(self, number: int) -> None:
        """Fail the codec stream of one speech."""
        if codecs := list(self.open_speeches.values()):
            codecs[number % len(codecs)].fail(GenerationFailed("failed alone"))

    def expect_utterance(self) -> None: ...

    def open(self, request: SpeechRequest) -> UtteranceSpeech:
        if not self._state.speaks:
            raise EngineNotReady("not ready", retry_after_ms=1000)
        if self.free_slots <= 0:
            raise AtCapacity("no slot")
        seed = request.seed or 0

        def new_codec() -> FakeCodec:
            return FakeCodec(
                self._chunk_frames,
                lambda number, codes: 0.1 + (codes[0] * 37 + seed * 101 + number * 13) % 8000 / 10_000,
            )

        def take_slots(_: LeasedSlots | None, context: NDArray[np.int16]) -> SpeechSlots:
            """Slots for a speech that goes on; its new codec has the frames of all before it."""
            if not self._state.speaks:
                raise EngineNotReady("not ready", retry_after_ms=1000)
            before, after = codecs[-1], new_codec()
            after.follow(before, context)
            codecs.append(after)
            self.open_speeches[speech] = after
            return SpeechSlots(self._engine.open, after)

        codecs = [new_codec()]
        rules = VoiceConfig(text=TextRules(segment_tokens=SEGMENT_TOKENS))
        speech = UtteranceSpeech(
            UtterancePlan(
                PROMPT,
                replace(SAMPLING, seed=seed),
                request.max_frames,
                lookahead_frames=25,
                rules=rules,
                codes=CodeLog(request.past, keep=request.keep_codes),
            ),
            text=UtteranceText(rules.text, _tokenizer(), self.max_characters),
            timing=WordAligner(),
            slots=SpeechSlots(self._engine.open, codecs[0]),
            take_slots=take_slots,
            credit=self._rounds,
            on_end=lambda speech: self.open_speeches.pop(speech, None) and None,
            visemes=TOKEN_VISEMES if request.visemes else None,
        )
        self.open_speeches[speech] = codecs[0]
        return speech


async def offline(sent: SentText, seed: int) -> Pcm:
    """The audio of the same text when no other utterance is open, unpaced."""
    voice = ModelFreePipeline(slots=1, chunk_frames=100)
    await voice.start()
    speech = voice.open(SpeechRequest(voice="ada", seed=seed))
    speech.advance(UNPACED_FRAMES)
    for fragment in sent:
        if fragment is None:
            speech.flush()
        else:
            speech.push_text(fragment)
    speech.end()
    chunks = [chunk.pcm async for chunk in speech]
    await speech.aclose()
    return np.concatenate(chunks)
