"""Whether a checkpoint's files are all there and fit each other, before anything is loaded."""
# TODO-DOC A Qwen3-TTS checkpoint as a voice: who can be spoken with, and what an utterance of theirs is going to be.
# TODO-DOC It loads no weights: talker and codec are elsewhere.

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from voxgate.codecs.neural.checkpoint import CodecFormatError
from voxgate.codecs.neural.config import CodecMode, DecoderConfig
from voxgate.codecs.neural.decoder_shapes import check_tensors
from voxgate.codecs.pcm import FRAME_MS

from .alignment.coarse import CoarseScorer
from .alignment.lazy import LazyWordAligner
from .alignment.phones import PhoneScorer, load_phone_table
from .alignment.word_timing import ORDINARY_PACE, WordAligner, WordTiming
from .checkpoint import TalkerCheckpoint, load_checkpoint
from .checkpoint_weights import check_weights
from .cloned_voice import ClonedVoice
from .errors import CheckpointError
from .interface import SamplingOptions, SpeechRequest, VoiceInfo
from .talker.generation import Sampling
from .talker.vllm.config import GpuOptions
from .text.tokenizer import TextTokenizer, load_tokenizer
from .text.utterance_text import UtteranceText
from .utterance import UtterancePlan
from .voice_config import load_voice_config
from .voices import ModelVoices


def check_files(checkpoint: TalkerCheckpoint) -> None:
    """Look at talker and codec without reading a weight; takes milliseconds. Raises CheckpointError."""
    check_weights(checkpoint)
    folder = checkpoint.codec_folder
    try:
        codec = DecoderConfig.from_checkpoint(folder)
        check_tensors(folder, codec)
    except CodecFormatError as error:
        raise CheckpointError(str(error)) from error
    if (codec.num_quantizers, codec.codebook_size) != (checkpoint.groups, checkpoint.codebook):
        raise CheckpointError(
            f"{folder} decodes {codec.num_quantizers} codebooks of {codec.codebook_size} codes, but the talker makes "
            f"{checkpoint.groups} of {checkpoint.codebook}"
        )


GPU_INITIAL_BURST_MS = 640
"""On a GPU a step takes far less than the 80 ms that are heard of it, so little is enough to begin with."""

GPU_PREFILLED_PROMPTS = 32
"""Utterances that may begin within some 50 ms and still find their prompt read."""

UNPACED_LOOKAHEAD_FACTOR = 2
"""On a GPU speech that nobody listens to may be so many times as far ahead of what was sent: a step of many costs less
a frame, and nobody should be held back from it by how long his sound is on its way."""

MODEL_TYPES = ("custom_voice", "voice_design", "base")


@dataclass(frozen=True, slots=True)
class SynthesizerOptions:
    """`lookahead_ms`: how far generation may run ahead of the listener; `initial_burst_ms`: how far before he has heard anything,
    from where it grows as he hears it (None: all of it, on a GPU GPU_INITIAL_BURST_MS); `slots`: the most utterances there can
    be at once.

    `attached_processes`: other processes that share the engine, in slots lent to them. `prefilled_prompts`: prompts that are read before they
    are asked for (None: GPU_PREFILLED_PROMPTS on a GPU, none elsewhere).

    Without `slots`, more than the device is known to carry, as far as memory goes: how many it does carry is measured.
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


class VoiceModel:
    """The voices of a checkpoint folder. Raises CheckpointError when it is not one that can be spoken with."""

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
            self._rules = load_voice_config(folder)
            self._tokenizer: TextTokenizer = load_tokenizer(folder)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{folder}: {error}") from error
        # An id beyond the table would end the engine's process, and every utterance with it.
        if self._tokenizer.vocabulary > self._checkpoint.text_vocab:
            raise CheckpointError(
                f"{folder}: the tokenizer has {self._tokenizer.vocabulary} ids, the model {self._checkpoint.text_vocab}"
            )
        self.max_characters = options.max_characters
        self._catalog = ModelVoices(self._checkpoint, self._rules, self._tokenizer)
        self.voices: Mapping[str, VoiceInfo] = self._catalog.voices
        self._pace: dict[str, float] = {}
        table = load_phone_table(self._checkpoint)
        self._phone_scorer = None if table is None else PhoneScorer(table)

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

    def _utterance_text(self, request: SpeechRequest) -> UtteranceText:
        normalise = request.language.lower() if request.normalise else None
        return UtteranceText(self._rules.text, self._tokenizer, self.max_characters, normalise)

    def _clock(self, request: SpeechRequest) -> WordTiming:
        clock = WordAligner(self._pace.get(self._name(request), ORDINARY_PACE), self._phone_scorer or CoarseScorer())
        return clock if request.words else LazyWordAligner(clock)

    def _name(self, request: SpeechRequest) -> str:
        return request.voice.lower() or self.default_voice

    def _plan(self, request: SpeechRequest) -> UtterancePlan:
        seed = random.getrandbits(53) if request.seed is None else request.seed
        cpu = self._options.device == "cpu"
        initial_burst_ms = self._options.initial_burst_ms or (None if cpu else GPU_INITIAL_BURST_MS)
        return UtterancePlan(
            prompt=self._catalog.prompt(request),
            sampling=self._sampling(request.sampling, seed),
            max_frames=request.max_frames,
            lookahead_frames=-(-self._options.lookahead_ms // FRAME_MS)
            * (1 if request.paced or cpu else UNPACED_LOOKAHEAD_FACTOR),
            initial_burst_frames=None if initial_burst_ms is None else -(-initial_burst_ms // FRAME_MS),
            frames_before_first_pcm=None if cpu else 1,
            rules=self._rules,
            paced=request.paced,
            trim_silence=request.trim_silence,
        )

    def _sampling(self, wanted: SamplingOptions, seed: int) -> Sampling:
        usual = asdict(self._checkpoint.defaults)
        own = {name: value for name, value in asdict(wanted).items() if value is not None}
        del usual["max_frames"]
        return Sampling(**(usual | own), seed=seed, early_end=self._rules.limits.early_end)
