"""A Qwen3-TTS checkpoint folder as both synthesizers see it: options, voices, and the plan of an utterance.

Nothing here loads weights: only the headers of their files are read.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np
from voxgate.codecs.neural.checkpoint import CodecFormatError
from voxgate.codecs.neural.config import CodecMode, DecoderConfig
from voxgate.codecs.neural.decoder_shapes import check_tensors
from voxgate.codecs.pcm import FRAME_MS

from .alignment.coarse import CoarseScorer
from .alignment.lazy import LazyWordAligner
from .alignment.phones import PhoneScorer, load_phone_table
from .alignment.visemes import code_visemes
from .alignment.word_timing import ORDINARY_PACE, WordAligner, WordTiming
from .checkpoint.checkpoint import TalkerCheckpoint, load_checkpoint
from .checkpoint.identity import checkpoint_identity
from .checkpoint.voice_config import load_voice_config
from .checkpoint.weights import check_weights
from .cloned_voice import ClonedVoice
from .code_log import CodeLog, check_runs
from .codec.stream import CodecContext
from .credit import CreditRounds
from .errors import CheckpointError
from .interface import LeasedSlots, SamplingOptions, SpeechRequest, VoiceInfo
from .talker.generation import Sampling
from .talker.vllm.config import GpuOptions
from .talker.vllm.proven import CPU_HEAD_DIMS
from .text.lexicon.filter import TextFilter, make_text_filter
from .text.text_turns import TextTurns
from .text.tokenizer import TextTokenizer, load_tokenizer
from .text.utterance_text import UtteranceText
from .utterance.plan import FIRST_CHARACTERS, TakeSlots, UtterancePlan
from .utterance.read_ahead import ReadAhead
from .utterance.speech import UtteranceSpeech
from .voices import ModelVoices


def check_files(checkpoint: TalkerCheckpoint, device: str) -> None:
    """Checks that the files of talker and codec are complete, fit each other and can be run on `device`.

    Raises CheckpointError. It reads no weights, and takes milliseconds.
    """
    head_dim = checkpoint.talker.head_dim
    if device == "cpu" and head_dim not in CPU_HEAD_DIMS:
        raise CheckpointError(
            f"{checkpoint.folder / 'config.json'}: talker_config.head_dim must be one of "
            f"{', '.join(map(str, CPU_HEAD_DIMS))} on a CPU, got {head_dim}"
        )
    check_weights(checkpoint)
    folder = checkpoint.codec_folder
    try:
        codec = DecoderConfig.from_checkpoint(folder)
        check_tensors(folder, codec)
    except CodecFormatError as error:
        raise CheckpointError(str(error)) from error
    if (codec.num_quantizers, codec.codebook_size) != (checkpoint.groups, checkpoint.codebook):
        raise CheckpointError(
            f"{folder} must decode the talker's {checkpoint.groups} codebooks of {checkpoint.codebook} codes, "
            f"got {codec.num_quantizers} of {codec.codebook_size}"
        )


GPU_INITIAL_BURST_MS = 640
"""Initial burst on a GPU unless set: a step takes far less than its 80 ms of audio, so little is enough to begin."""

GPU_PREFILLED_PROMPTS = 32
"""Prefilled prompts on a GPU unless set: more utterances than begin in the 50 ms after which those used are replaced
where few are left."""

UNPACED_LOOKAHEAD_FACTOR = 2
"""Factor of the lookahead of unpaced speech on a GPU. Steps of many utterances cost less per frame, and the time until
its audio was sent should keep none of them out of a step."""

MAX_GENERATION_FRAMES = 2048
"""Longest single generation, 164 s. A slot takes as much text as is spoken in that time; the rest continues in the
next generation. Checkpoints allow four times as many frames, whose memory would rarely be used."""

REHEARSED_TEXT = "Mr. Moon counts to 12. Then he stops."
"""Has an abbreviation, a number and two sentence ends."""

_SAMPLING = tuple(each.name for each in fields(SamplingOptions))
"""Names of the options of a request's sampling."""

MODEL_TYPES = ("custom_voice", "voice_design", "base")


@dataclass(frozen=True, slots=True)
class SynthesizerOptions:
    """How a voice model is run.

    `slots`: the most utterances at once; None: as many as memory allows, up to more than the device can speak without
    gaps, which is measured. `lookahead_ms`: how far generation may run ahead of playback. `initial_burst_ms`: how far
    before anything was played, from where it grows with playback; None: all of it, on a GPU GPU_INITIAL_BURST_MS.
    `codec_mode`, `left_context`: see `codecs/neural/streaming.py`. `attached_processes`: other processes that share
    the engine in leased slots. `prefilled_prompts`: prompts that are computed before they are requested; None:
    GPU_PREFILLED_PROMPTS on a GPU, otherwise none. `start_history`: file that keeps how long the last start took.
    """

    slots: int | None = None
    lookahead_ms: int = 2000
    initial_burst_ms: int | None = None
    max_characters: int = 20_000
    device: str = "cpu"
    talker_threads: int = 1
    codec_threads: int = 1
    codec_mode: CodecMode = "stateful"
    left_context: int = 72
    kv_cache_bytes: int | None = None
    gpu: GpuOptions = field(default_factory=GpuOptions)
    start_timeout_s: float = 300.0
    attached_processes: int = 0
    prefilled_prompts: int | None = None
    start_history: Path | None = None


@dataclass(frozen=True, slots=True)
class PreparedUtterance:
    """The `PreparedSpeech` of a request."""

    request: SpeechRequest
    plan: UtterancePlan
    text: UtteranceText
    timing: WordTiming
    text_filter: TextFilter
    read_ahead: ReadAhead
    begin: Callable[[PreparedUtterance, LeasedSlots | None], UtteranceSpeech]
    """Begins it in leased slots, or in free ones."""

    def open(self, place: LeasedSlots | None = None) -> UtteranceSpeech:
        return self.begin(self, place)


class VoiceModel(ABC):
    """The voices of a checkpoint folder. Raises CheckpointError when it cannot be used."""

    def __init__(self, folder: Path, options: SynthesizerOptions) -> None:
        self._checkpoint = load_checkpoint(folder)
        if self._checkpoint.model_type not in MODEL_TYPES:
            raise CheckpointError(
                f"{folder}: tts_model_type must be one of {', '.join(MODEL_TYPES)}, got {self._checkpoint.model_type}"
            )
        if self._checkpoint.model_type == "custom_voice" and not self._checkpoint.speakers:
            raise CheckpointError(f"{folder} names no speakers")
        self._options = options
        check_files(self._checkpoint, options.device)
        try:
            self._rules = load_voice_config(folder)
            self._tokenizer: TextTokenizer = load_tokenizer(folder)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{folder}: {error}") from error
        # An id outside the embedding table would end the engine's process, and every utterance with it.
        if self._tokenizer.vocabulary > self._checkpoint.text_vocab:
            raise CheckpointError(
                f"{folder}: the tokenizer must have at most {self._checkpoint.text_vocab} ids, "
                f"got {self._tokenizer.vocabulary}"
            )
        self.max_characters = options.max_characters
        self.identity = checkpoint_identity(folder)
        table = load_phone_table(self._checkpoint)
        self._phone_scorer = None if table is None else PhoneScorer(table)
        self._visemes = None if table is None else code_visemes(table)
        has_visemes = self._visemes is not None
        self._catalog = ModelVoices(self._checkpoint, self._rules, self._tokenizer, visemes=has_visemes)
        self.voices: Mapping[str, VoiceInfo] = self._catalog.voices
        self._default_sampling = {name: getattr(self._checkpoint.defaults, name) for name in _SAMPLING}
        self._text_turns = TextTurns()
        self._pace: dict[str, float] = {}
        """Of each voice's last utterance, for the word times of its next."""

    @property
    def start_progress(self) -> str:
        """Empty: nothing is started here."""
        return ""

    @property
    def default_voice(self) -> str:
        """The first voice; empty while a base model has none."""
        return self._catalog.default

    def add_voice(self, voice: ClonedVoice) -> None:
        """Offers a voice made from a recording, and replaces an earlier one of its name for new utterances.

        Raises BadVoice when it does not fit the checkpoint or has the name of one of its own voices.
        """
        self._catalog.add(voice)

    def remove_voice(self, name: str) -> None:
        """Withdraws a voice from new utterances. Raises UnknownVoice, also for the checkpoint's own voices."""
        self._catalog.remove(name)

    def rehearse(self, request: SpeechRequest) -> None:
        """As `Synthesizer.rehearse`. Takes some 5 ms."""
        text = self._utterance_text(request)
        for piece in make_text_filter(request.markup, request.lexica, request.prosody).push(REHEARSED_TEXT):
            if isinstance(piece, str):
                text.append(piece)
        text.end()

    def prepare(self, request: SpeechRequest, beginning: str = "") -> PreparedUtterance:
        """As `Synthesizer.prepare`."""
        text = self._utterance_text(request)
        text_filter = make_text_filter(request.markup, request.lexica, request.prosody)
        read_ahead = ReadAhead()
        if beginning and self._text_turns.left > 0:
            self._text_turns.spend(min(len(beginning), FIRST_CHARACTERS))
            read_ahead = ReadAhead.of(beginning, text_filter, text)
        return PreparedUtterance(
            request,
            self._plan(request),
            text,
            self._timing(request),
            text_filter,
            read_ahead,
            self._begin,
        )

    def open(self, request: SpeechRequest, place: LeasedSlots | None = None) -> UtteranceSpeech:
        """As `Synthesizer.open`."""
        return self.prepare(request).open(place)

    @abstractmethod
    def _begin(self, prepared: PreparedUtterance, place: LeasedSlots | None) -> UtteranceSpeech:
        """Begins an utterance. Raises AtCapacity, EngineNotReady."""

    def _begin_speech(
        self,
        prepared: PreparedUtterance,
        *,
        place: LeasedSlots | None,
        take_slots: TakeSlots,
        credit: CreditRounds,
        on_end: Callable[[UtteranceSpeech], None] = lambda _: None,
    ) -> UtteranceSpeech:
        """Begins a prepared utterance; its pace goes to the voice's next one."""
        request, plan = prepared.request, prepared.plan

        def end(speech: UtteranceSpeech) -> None:
            self._pace[self._name(request)] = speech.pace
            on_end(speech)

        return UtteranceSpeech(
            plan,
            text=prepared.text,
            timing=prepared.timing,
            # The talker continues the reference recording, so the codec does too.
            slots=take_slots(place, CodecContext.reference(plan.prompt.reference.astype(np.int16))),
            take_slots=take_slots,
            credit=credit,
            on_end=end,
            text_turns=self._text_turns,
            text_filter=prepared.text_filter,
            read_ahead=prepared.read_ahead,
            visemes=self._visemes if request.visemes else None,
        )

    def _utterance_text(self, request: SpeechRequest) -> UtteranceText:
        normalise = request.language.lower() if request.normalise else None
        return UtteranceText(self._rules.text, self._tokenizer, self.max_characters, normalise)

    def _timing(self, request: SpeechRequest) -> WordTiming:
        aligner = WordAligner(self._pace.get(self._name(request), ORDINARY_PACE), self._phone_scorer or CoarseScorer())
        return aligner if request.words else LazyWordAligner(aligner)

    def _name(self, request: SpeechRequest) -> str:
        return request.voice.lower() or self.default_voice

    def _plan(self, request: SpeechRequest) -> UtterancePlan:
        seed = random.getrandbits(53) if request.seed is None else request.seed
        cpu = self._options.device == "cpu"
        model = self._checkpoint
        check_runs(
            request.past,
            groups=model.groups,
            codebook=model.codebook,
            max_frames=min(model.defaults.max_frames, MAX_GENERATION_FRAMES) - 1,
        )
        initial_burst_ms = self._options.initial_burst_ms or (None if cpu else GPU_INITIAL_BURST_MS)
        return UtterancePlan(
            prompt=self._catalog.prompt(request),
            sampling=self._sampling(request.sampling, seed),
            max_frames=request.max_frames,
            lookahead_frames=-(-self._options.lookahead_ms // FRAME_MS)
            * (1 if request.paced or cpu else UNPACED_LOOKAHEAD_FACTOR),
            initial_burst_frames=None if initial_burst_ms is None else -(-initial_burst_ms // FRAME_MS),
            frames_before_first_pcm=None if cpu or not request.paced else 1,
            rules=self._rules,
            paced=request.paced,
            trim_silence=request.trim_silence,
            prosody=request.prosody,
            codes=CodeLog(request.past, keep=request.keep_codes),
        )

    def _sampling(self, options: SamplingOptions, seed: int) -> Sampling:
        given = {name: value for name in _SAMPLING if (value := getattr(options, name)) is not None}
        return Sampling(**(self._default_sampling | given), seed=seed, early_end=self._rules.limits.early_end)
