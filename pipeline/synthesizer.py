"""One voice model ready to speak: its talker and codec processes, and the utterances under way."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import psutil

from .calibration import FRAMES, calibrate
from .capacity import Capacity, Stage
from .catalog import VoiceCatalog
from .checkpoint import CheckpointError, load_checkpoint
from .checkpoint_files import check_files
from .codec.service import CodecService
from .credit import CreditRounds
from .deferred_words import DeferredClock, WordClock
from .errors import AtCapacity, EngineNotReady
from .phone_ear import PhoneEar
from .phone_table import load_phone_table
from .plan import Plan
from .sound_ear import SoundEar
from .speech import FRAME_MS, EngineState, SamplingOptions, SpeechRequest, VoiceInfo
from .step_times import StepSummary
from .talker.engine import EngineOptions, TalkerEngine
from .talker.generation import Sampling
from .text.english import spoken_english
from .text.rules import load_voice_file
from .text.tokenizer import TextTokenizer, load_tokenizer
from .text.utterance import UtteranceText
from .utterance import UtteranceSpeech
from .voice import ClonedVoice
from .words import ORDINARY_PACE, SpokenClock

MODEL_TYPES = ("custom_voice", "voice_design", "base")

CUDA_SLOTS = 128
CPU_SLOTS = 32
CPU_MEMORY_SHARE = 4
"""The talker's slots take one part in so many of a machine's memory."""

MAX_GENERATION_FRAMES = 2048
"""Longest single generation, 164 s: a slot takes no more text than is said in that time, and the rest of a text goes
on in the next generation. Checkpoints allow four times as much, in memory that would be kept for nothing."""


@dataclass(frozen=True, slots=True)
class _Processes:
    """The talker's engine and the codec's worker, which live and die together."""

    talker: TalkerEngine
    codec: CodecService
    capacity: Capacity

    @property
    def alive(self) -> bool:
        return self.talker.alive and self.codec.ready

    async def start(self) -> None:
        starting = [asyncio.create_task(part.start()) for part in (self.codec, self.talker)]
        try:
            await asyncio.gather(*starting)
        except BaseException:
            for part in starting:
                part.cancel()
            await asyncio.wait(starting)
            await self.close()
            raise

    async def close(self) -> None:
        await asyncio.gather(self.talker.close(), self.codec.close())


@dataclass(frozen=True, slots=True)
class SynthesizerOptions:
    """`ahead_ms`: how far generation may run ahead of the listener; `slots`: the most utterances there can be at once.

    Without `slots`, more than the device is known to carry, as far as memory goes: how many it does carry is measured.
    """

    slots: int | None = None
    ahead_ms: int = 2000
    max_characters: int = 20_000
    device: str = "cpu"
    talker_threads: int = 1
    codec_threads: int = 1
    codec_mode: str = "stateful"
    left_context: int = 72
    kv_cache_bytes: int | None = None
    start_timeout_s: float = 300.0


class QwenSynthesizer:
    """The `Synthesizer` of `speech.py` for a Qwen3-TTS checkpoint folder.

    Raises CheckpointError when the folder is not a checkpoint it can speak with.
    """

    def __init__(self, folder: Path, options: SynthesizerOptions) -> None:
        self._checkpoint = load_checkpoint(folder)
        if self._checkpoint.model_type not in MODEL_TYPES:
            raise CheckpointError(
                f"{folder} is a {self._checkpoint.model_type} model; there are: {', '.join(MODEL_TYPES)}"
            )
        if self._checkpoint.model_type == "custom_voice" and not self._checkpoint.speakers:
            raise CheckpointError(f"{folder} names no speakers")
        self._options = options
        check_files(self._checkpoint)
        try:
            self._rules = load_voice_file(folder)
            self._tokenizer: TextTokenizer = load_tokenizer(folder)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{folder}: {error}") from error
        # An id beyond the table would end the engine's process, and every utterance with it.
        if self._tokenizer.vocabulary > self._checkpoint.text_vocab:
            raise CheckpointError(
                f"{folder}: the tokenizer has {self._tokenizer.vocabulary} ids, the model {self._checkpoint.text_vocab}"
            )
        self.slots = options.slots or self._ample_slots()
        self.max_characters = options.max_characters
        self._catalog = VoiceCatalog(self._checkpoint, self._rules, self._tokenizer)
        self.voices: Mapping[str, VoiceInfo] = self._catalog.voices
        self._speeches: set[UtteranceSpeech] = set()
        self._pace: dict[str, float] = {}
        table = load_phone_table(self._checkpoint)
        self._phone_ear = None if table is None else PhoneEar(table, spoken_english)
        self._rounds = CreditRounds()
        self._processes: _Processes | None = None
        self._idle_state = EngineState.STARTING

    @property
    def default_voice(self) -> str:
        """The first voice; empty while a base model has been given none."""
        return self._catalog.default

    def add_voice(self, voice: ClonedVoice) -> None:
        """Offer a voice made from a recording, in place of an earlier one of its name; utterances keep what they have.

        Raises BadVoice when it does not fit the checkpoint or has the name of one of its own voices.
        """
        self._catalog.add(voice)

    def remove_voice(self, name: str) -> None:
        """Offer it no longer; utterances under way go on. Raises UnknownVoice, also for the checkpoint's own voices."""
        self._catalog.remove(name)

    @property
    def state(self) -> EngineState:
        """DEAD once a process died or hung, whether or not anyone was speaking."""
        if self._processes is None:
            return self._idle_state
        if not self._processes.alive:
            return EngineState.DEAD
        if self._idle_state is EngineState.STARTING:
            return EngineState.STARTING
        late = self._processes.capacity.late(len(self._speeches), asyncio.get_running_loop().time())
        return EngineState.DEGRADED if late else EngineState.READY

    @property
    def capacity(self) -> int:
        """Utterances that can be spoken at once without a gap, by the steps' measured times."""
        if self._processes is None:
            return self.slots
        return self._processes.capacity.utterances(asyncio.get_running_loop().time())

    @property
    def talker(self) -> TalkerEngine:
        """The talker's engine, for measurements. Raises EngineNotReady."""
        if self._processes is None:
            raise EngineNotReady("the voice is not ready")
        return self._processes.talker

    @property
    def step_times(self) -> Mapping[str, Sequence[StepSummary]]:
        """The newest steps of "talker" and "codec" by batch size: sessions in a step, frames in a job."""
        stages = self._processes.capacity.stages if self._processes is not None else ()
        return {stage.name: stage.times.summaries() for stage in stages}

    async def start(self) -> None:
        """Start both processes side by side, and measure what they carry; after `close` again.

        Raises EngineError; neither is left running then.
        """
        self._idle_state = EngineState.STARTING
        processes = self._build()
        try:
            await processes.start()
            self._processes = processes
            await calibrate(processes.capacity, self.slots, lambda: self.open(self._sample()))
            # A cut utterance tells nothing of how fast the voice speaks.
            self._pace.clear()
            # What is loaded by now stays. To look through all of it for garbage, as Python would again and again, would
            # silence everybody for tenths of a second.
            gc.collect()
            gc.freeze()
        except BaseException:
            await self.close()
            raise
        self._idle_state = EngineState.DEAD

    async def close(self) -> None:
        """Stop both processes; speeches under way raise EngineLost. Safe to call twice."""
        processes, self._processes = self._processes, None
        self._idle_state = EngineState.DEAD
        if processes is not None:
            await processes.close()

    @property
    def free_slots(self) -> int:
        """Talker slots that nobody holds or will need again, not even an utterance that is being stopped."""
        if self._processes is None:
            return 0
        # An utterance between two generations holds no slot and must find one.
        return self._processes.talker.free_slots - sum(not speech.holds_slot for speech in self._speeches)

    def _sample(self) -> SpeechRequest:
        """The shortest thing that the model can be asked to say."""
        voice = self.voices.get(self.default_voice)
        described = voice is not None and voice.needs_instructions
        instructions = "A calm voice." if described else None
        return SpeechRequest(self.default_voice, instructions=instructions, max_frames=FRAMES)

    def _build(self) -> _Processes:
        codec = self._build_codec()
        talker = self._build_talker(self.slots, codec.invitation)
        stages = (Stage("talker", talker.times, self.slots), Stage("codec", codec.times, codec.max_job_frames))
        return _Processes(talker, codec, Capacity(stages, self.slots))

    def _ample_slots(self) -> int:
        if self._options.device != "cpu":
            return CUDA_SLOTS
        memory_bytes = psutil.virtual_memory().total // CPU_MEMORY_SHARE
        fitting = int(memory_bytes) // self._build_talker(slots=1).slot_bytes
        return max(1, min(CPU_SLOTS, fitting))

    def _build_talker(self, slots: int, codec: str | None = None) -> TalkerEngine:
        options = self._options
        return TalkerEngine(
            self._checkpoint,
            EngineOptions(
                slots=slots,
                max_frames=min(self._checkpoint.defaults.max_frames, MAX_GENERATION_FRAMES),
                device=options.device,
                codec=codec,
                threads=options.talker_threads,
                kv_cache_bytes=options.kv_cache_bytes,
                start_timeout_s=options.start_timeout_s,
            ),
        )

    def _build_codec(self) -> CodecService:
        options = self._options
        return CodecService(
            self._checkpoint.codec_folder,
            # An utterance keeps its codec stream while it plays out, when its talker slot serves the next one already.
            slots=2 * self.slots,
            mode=options.codec_mode,
            device=options.device,
            left_context=options.left_context,
            threads=options.codec_threads,
            start_deadline_s=options.start_timeout_s,
        )

    def open(self, request: SpeechRequest) -> UtteranceSpeech:
        """Begin an utterance. Raises UnknownVoice, UnknownLanguage, UnsupportedOption, AtCapacity, EngineNotReady."""
        processes = self._processes
        if processes is None or not processes.alive:
            raise EngineNotReady("the voice is not ready")
        voice = request.voice.lower() or self.default_voice
        plan = self._plan(request)
        if not self.free_slots:
            raise AtCapacity("every talker slot is in use")
        normalise = request.language.lower() if request.normalise else None
        speech = UtteranceSpeech(
            plan,
            UtteranceText(self._rules.text, self._tokenizer, self.max_characters, normalise),
            self._clock(voice, words=request.words),
            processes.talker.open,
            # Speech goes on from the reference in the talker, so in the codec too.
            processes.codec.open(paced=request.paced, context=plan.prompt.reference.astype(np.int16)),
            self._rounds,
            lambda speech: self._closed(voice, speech),
        )
        self._speeches.add(speech)
        return speech

    def _clock(self, voice: str, *, words: bool) -> WordClock:
        clock = SpokenClock(self._pace.get(voice, ORDINARY_PACE), self._phone_ear or SoundEar())
        return clock if words else DeferredClock(clock)

    def _closed(self, voice: str, speech: UtteranceSpeech) -> None:
        self._speeches.discard(speech)
        self._pace[voice] = speech.pace

    def _plan(self, request: SpeechRequest) -> Plan:
        seed = random.getrandbits(53) if request.seed is None else request.seed
        return Plan(
            prompt=self._catalog.prompt(request),
            sampling=self._sampling(request.sampling, seed),
            max_frames=request.max_frames,
            ahead_frames=-(-self._options.ahead_ms // FRAME_MS),
            rules=self._rules,
            paced=request.paced,
            trim_silence=request.trim_silence,
        )

    def _sampling(self, wanted: SamplingOptions, seed: int) -> Sampling:
        usual = asdict(self._checkpoint.defaults)
        own = {name: value for name, value in asdict(wanted).items() if value is not None}
        del usual["max_frames"]
        return Sampling(**(usual | own), seed=seed, early_end=self._rules.limits.early_end)
