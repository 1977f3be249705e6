"""A Qwen3-TTS checkpoint as a voice: who can be spoken with, and what an utterance of theirs is going to be.

It loads no weights: talker and codec are elsewhere.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from .catalog import VoiceCatalog
from .checkpoint import CheckpointError, load_checkpoint
from .checkpoint_files import check_files
from .deferred_words import DeferredClock, WordClock
from .phone_ear import PhoneEar
from .phone_table import load_phone_table
from .plan import Plan
from .sound_ear import SoundEar
from .speech import FRAME_MS, SamplingOptions, SpeechRequest, VoiceInfo
from .talker.generation import Sampling
from .text.rules import load_voice_file
from .text.tokenizer import TextTokenizer, load_tokenizer
from .text.utterance import UtteranceText
from .voice import ClonedVoice
from .words import ORDINARY_PACE, SpokenClock

GPU_FIRST_MS = 640
"""On a GPU a step takes far less than the 80 ms that are heard of it, so little is enough to begin with."""

GPU_WARM = 32
"""Utterances that may begin within some 50 ms and still find their prompt read."""

UNPACED_AHEAD = 2
"""On a GPU speech that nobody listens to may be so many times as far ahead of what was sent: a step of many costs less
a frame, and nobody should be held back from it by how long his sound is on its way."""

MODEL_TYPES = ("custom_voice", "voice_design", "base")


@dataclass(frozen=True, slots=True)
class SynthesizerOptions:
    """`ahead_ms`: how far generation may run ahead of the listener; `first_ms`: how far before he has heard anything,
    from where it grows as he hears it (None: all of it, on a GPU GPU_FIRST_MS); `slots`: the most utterances there can
    be at once.

    `guests`: other processes that share the engine, in slots lent to them. `warm`: prompts that are read before they
    are asked for (None: GPU_WARM on a GPU, none elsewhere).

    Without `slots`, more than the device is known to carry, as far as memory goes: how many it does carry is measured.
    """

    slots: int | None = None
    ahead_ms: int = 2000
    first_ms: int | None = None
    max_characters: int = 20_000
    device: str = "cpu"
    talker_threads: int = 1
    codec_threads: int = 1
    codec_mode: str = "stateful"
    left_context: int = 72
    kv_cache_bytes: int | None = None
    gpu_memory: float = 0.7
    own_kernels: bool = True
    streamed_layers: bool = False
    whole_predictor: bool = False
    start_timeout_s: float = 300.0
    guests: int = 0
    warm: int | None = None


class QwenVoice:
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
            self._rules = load_voice_file(folder)
            self._tokenizer: TextTokenizer = load_tokenizer(folder)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{folder}: {error}") from error
        # An id beyond the table would end the engine's process, and every utterance with it.
        if self._tokenizer.vocabulary > self._checkpoint.text_vocab:
            raise CheckpointError(
                f"{folder}: the tokenizer has {self._tokenizer.vocabulary} ids, the model {self._checkpoint.text_vocab}"
            )
        self.max_characters = options.max_characters
        self._catalog = VoiceCatalog(self._checkpoint, self._rules, self._tokenizer)
        self.voices: Mapping[str, VoiceInfo] = self._catalog.voices
        self._pace: dict[str, float] = {}
        table = load_phone_table(self._checkpoint)
        self._phone_ear = None if table is None else PhoneEar(table)

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

    def _clock(self, request: SpeechRequest) -> WordClock:
        clock = SpokenClock(self._pace.get(self._name(request), ORDINARY_PACE), self._phone_ear or SoundEar())
        return clock if request.words else DeferredClock(clock)

    def _name(self, request: SpeechRequest) -> str:
        return request.voice.lower() or self.default_voice

    def _plan(self, request: SpeechRequest) -> Plan:
        seed = random.getrandbits(53) if request.seed is None else request.seed
        cpu = self._options.device == "cpu"
        first_ms = self._options.first_ms or (None if cpu else GPU_FIRST_MS)
        return Plan(
            prompt=self._catalog.prompt(request),
            sampling=self._sampling(request.sampling, seed),
            max_frames=request.max_frames,
            ahead_frames=-(-self._options.ahead_ms // FRAME_MS) * (1 if request.paced or cpu else UNPACED_AHEAD),
            first_frames=None if first_ms is None else -(-first_ms // FRAME_MS),
            undecoded_frames=None if cpu else 1,
            rules=self._rules,
            paced=request.paced,
            trim_silence=request.trim_silence,
        )

    def _sampling(self, wanted: SamplingOptions, seed: int) -> Sampling:
        usual = asdict(self._checkpoint.defaults)
        own = {name: value for name, value in asdict(wanted).items() if value is not None}
        del usual["max_frames"]
        return Sampling(**(usual | own), seed=seed, early_end=self._rules.limits.early_end)
