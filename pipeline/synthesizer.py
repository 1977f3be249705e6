"""The synthesizer that owns the engine: one voice model with its talker and codec processes, and its utterances."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path

import numpy as np
import psutil

from .capacity import Capacity, Stage, calibrate
from .cloned_voice import ClonedVoice
from .codec.service import CodecService
from .codec.stream import CodecContext
from .credit import StaggeredCredit
from .errors import AtCapacity, EngineNotReady, VoxgateError
from .gc_freeze import freeze_gc
from .interface import EngineState, LeasedSlots, SpeechRequest
from .ipc.engine_messages import Attach
from .step_times import StepSummary
from .talker.engine import TalkerEngine
from .talker.slot_lease import SlotLease
from .talker.start_progress import StartProgress
from .talker.vllm.config import EngineOptions
from .talker.vllm.launch import preload_vllm
from .utterance.plan import SpeechSlots
from .utterance.speech import UtteranceSpeech
from .voice_model import (
    GPU_PREFILLED_PROMPTS,
    MAX_GENERATION_FRAMES,
    PreparedUtterance,
    SynthesizerOptions,
    VoiceModel,
)

CPU_SLOTS = 32
"""Most slots on a CPU unless set."""
CPU_MEMORY_SHARE = 4
"""Divisor of the machine's memory that limits the talker's slots on a CPU."""


@dataclass(frozen=True, slots=True)
class _Processes:
    """The talker's engine and the codec's worker, which are started and stopped together."""

    talker: TalkerEngine
    codec: CodecService
    capacity: Capacity

    @property
    def alive(self) -> bool:
        return self.talker.alive and self.codec.ready

    async def start(self, progress: StartProgress) -> None:
        starting = [asyncio.create_task(self.codec.start()), asyncio.create_task(self.talker.start(progress))]
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


class QwenSynthesizer(VoiceModel):
    """The `Synthesizer` of `interface.py` for a Qwen3-TTS checkpoint folder.

    Raises CheckpointError for a folder that is not a checkpoint of a supported kind, and EngineError without a GPU that
    it fits on.
    """

    def __init__(self, folder: Path, options: SynthesizerOptions) -> None:
        super().__init__(folder, options)
        self._gpu = options.gpu
        self.slots = options.slots or self._default_slots()
        self._speeches: set[UtteranceSpeech] = set()
        self._progress = StartProgress(options.start_history)
        self._credit = StaggeredCredit(options.device)
        self._processes: _Processes | None = None
        self._measured: Capacity | None = None
        """What the first start has measured, which holds for the next ones."""
        self._starting = True
        """Whether a start, the first or a later one, has not finished."""
        self._leased = 0
        """Utterances of other processes."""

    @property
    def state(self) -> EngineState:
        """The engine's state; DEAD from when a process died or hung, whether or not anything was being spoken."""
        if self._processes is None:
            return EngineState.STARTING if self._starting else EngineState.DEAD
        if not self._processes.alive:
            return EngineState.DEAD
        if self._starting:
            return EngineState.STARTING
        utterances, now_s = len(self._speeches) + self._leased, asyncio.get_running_loop().time()
        overloaded = self._processes.capacity.overloaded(utterances, now_s)
        return EngineState.DEGRADED if overloaded else EngineState.READY

    @property
    def capacity(self) -> int:
        """Utterances that can be spoken at once without a gap, by the measured durations of steps."""
        if self._processes is None:
            return self.slots
        return self._processes.capacity.utterances(asyncio.get_running_loop().time())

    @property
    def capacity_changes(self) -> Mapping[str, int]:
        """Changes of `capacity` since the last start of the processes, by cause."""
        return {} if self._processes is None else self._processes.capacity.changes

    @property
    def start_progress(self) -> str:
        """What the start in progress does, and how long it still takes if that is known."""
        return str(self._progress) if self._starting else ""

    @property
    def talker(self) -> TalkerEngine:
        """The talker's engine, for measurements. Raises EngineNotReady."""
        if self._processes is None:
            raise EngineNotReady("the voice is not ready")
        return self._processes.talker

    @property
    def step_times(self) -> Mapping[str, Sequence[StepSummary]]:
        """Durations of the newest steps of "talker" and "codec", by generations in a step and frames in a job."""
        stages = self._processes.capacity.stages if self._processes is not None else ()
        return {stage.name: stage.times.summaries() for stage in stages}

    def run_ahead(self) -> None:
        """Begins to import vLLM, which takes longest of a start and depends on nothing else; returns at once."""
        preload_vllm(self._options.device, self._options.talker_threads)

    async def start(self) -> None:
        """Starts both processes, and measures their capacity the first time; can be called again after `close`.

        Raises EngineError. After an error or a cancellation no process is left behind.
        """
        self._starting = True
        self._progress.begin("preparing")
        processes = self._build()
        try:
            await processes.start(self._progress)
            self._processes = processes
            if self._measured is None:
                await self._calibrate(processes.capacity)
            freeze_gc()
            self._progress.finish()
        except BaseException:
            await self.close()
            raise
        self._starting = False

    async def _calibrate(self, capacity: Capacity) -> None:
        self._progress.enter("measuring how fast it speaks")
        # A base model may get its first voice later. `prompt` keeps this one in the catalog meanwhile.
        silent = ClonedVoice("silent", np.zeros(self._checkpoint.talker.hidden, np.float32))
        prompt = None if self.voices else self._catalog.unlisted(silent)
        request = replace(self._calibration_request(), voice_digest="" if prompt is None else silent.digest)
        await calibrate(capacity, self.slots, lambda frames: self.open(replace(request, max_frames=frames)))
        self._measured = capacity
        # Utterances that were cut give no pace of the voice.
        self._pace.clear()

    async def close(self) -> None:
        """Stops both processes; open speeches are lost. Safe to call twice."""
        processes, self._processes = self._processes, None
        self._starting = False
        if processes is not None:
            if not processes.talker.alive:
                # It may have been lost to the one kernel that can hang; what follows must not be lost to it again.
                self._gpu = replace(self._gpu, persistent_predictor=False)
            await processes.close()

    @property
    def free_slots(self) -> int:
        """Talker slots that no utterance holds or will need again, not even one that is being stopped."""
        if self._processes is None:
            return 0
        # An utterance between two generations holds no slot but needs one soon.
        due = sum(not (speech.holds_slot or speech.suspended) for speech in self._speeches)
        return self._processes.talker.free_slots - due

    def _calibration_request(self) -> SpeechRequest:
        """Returns the shortest request that the model accepts."""
        voice = self.voices.get(self.default_voice)
        needs_instructions = voice is not None and voice.needs_instructions
        instructions = "A calm voice." if needs_instructions else None
        return SpeechRequest(self.default_voice, instructions=instructions)

    def _build(self) -> _Processes:
        codec = self._build_codec()
        talker = self._build_talker(self.slots, codec.in_process_options)
        if self._measured is not None:
            talker.times, codec.times = (stage.times for stage in self._measured.stages)
            return _Processes(talker, codec, self._measured)
        stages = (Stage("talker", talker.times, self.slots), Stage("codec", codec.times, codec.max_job_frames))
        return _Processes(talker, codec, Capacity(stages, self.slots))

    def _default_slots(self) -> int:
        if self._options.device != "cpu":
            return self._build_talker(slots=1).plan_memory(None).slots
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
                gpu=self._gpu,
                codec=codec,
                threads=options.talker_threads,
                attached_processes=options.attached_processes,
                prefilled_prompts=options.prefilled_prompts
                if options.prefilled_prompts is not None
                else GPU_PREFILLED_PROMPTS
                if options.device != "cpu"
                else 0,
                kv_cache_bytes=options.kv_cache_bytes,
                start_timeout_s=options.start_timeout_s,
            ),
        )

    def _build_codec(self) -> CodecService:
        options = self._options
        return CodecService(
            self._checkpoint.codec_folder,
            # An utterance keeps its codec stream while its audio plays, when the next one has its talker slot already.
            slots=2 * self.slots,
            codec_mode=options.codec_mode,
            device=options.device,
            left_context=options.left_context,
            threads=options.codec_threads,
            shared=options.attached_processes > 0,
            start_deadline_s=options.start_timeout_s,
        )

    def expect_utterance(self) -> None:
        """As `Synthesizer.expect_utterance`."""
        if self._processes is not None:
            self._processes.talker.expect_utterance()

    def _begin(self, prepared: PreparedUtterance, place: LeasedSlots | None) -> UtteranceSpeech:  # noqa: ARG002 - for leased slots only
        self._check_ready()
        paced = prepared.request.paced
        speech = self._begin_speech(
            prepared,
            place=None,
            take_slots=lambda _, context: self._take_slots(context, paced=paced),
            credit=self._credit.next(paced=paced),
            on_end=self._speeches.discard,
        )
        self._speeches.add(speech)
        return speech

    def _check_ready(self) -> _Processes:
        if self._processes is None or not self._processes.alive:
            raise EngineNotReady("the voice is not ready")
        return self._processes

    def _take_slots(self, context: CodecContext, *, paced: bool) -> SpeechSlots:
        processes = self._check_ready()
        if not self.free_slots:
            raise AtCapacity("every talker slot is in use")
        processes.talker.keep_awake()
        return SpeechSlots(processes.talker.open, processes.codec.open(paced=paced, context=context))

    # For other processes

    def attachment(self, owner: int, last_epoch: int) -> Attach | None:
        """Returns how the process with number `owner` uses this engine; None while the engine does not run."""
        processes = self._processes
        if processes is None or not self.state.speaks:
            return None
        talker, codec = processes.talker, processes.codec
        return Attach(
            owner=owner,
            last_epoch=last_epoch,
            tables=talker.tables_path,
            shape=astuple(talker.shape),
            reports=talker.reports_address(owner),
            wakeup_address=talker.wakeup_address,
            codec=codec.jobs_address,
            codec_slots=codec.slots,
            max_job_frames=codec.max_job_frames,
        )

    def lease(self) -> SlotLease:
        """Leases slots for one utterance of another process. Raises AtCapacity, EngineNotReady, EngineLost."""
        processes = self._check_ready()
        codec = processes.codec.lease()
        try:
            talker = processes.talker.lease()
        except VoxgateError:
            processes.codec.reclaim(codec)
            raise
        processes.talker.keep_awake()
        self._leased += 1
        return SlotLease(talker, codec, lambda: self._reclaim(processes.codec, codec))

    def _reclaim(self, service: CodecService, slot: int) -> None:
        self._leased -= 1
        service.reclaim(slot)
