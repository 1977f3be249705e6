"""Makes a voice: from a recording, from a speaker vector, or as a blend of two voices.

docs/cloning.md describes the three ways. No torch is loaded before a recording has been decoded and accepted.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.pcm import SAMPLE_RATE_HZ, Pcm

from ..cloned_voice import ClonedVoice
from ..errors import BadVoice, CheckpointError
from .speaker_vectors import speaker_space_id
from .store import StoredVoice, VoiceOrigin, validated_name

if TYPE_CHECKING:
    from .recording import RecordingLimits

TRAILING_SILENCE_MS = 500
"""Silence appended to a recording before it is encoded (`docs/qwen3_tts.md`, section 13, item 3)."""
MAX_TEXT_CHARACTERS = 1000
"""Limit of every text field: more than can be said in the longest recording."""
MAX_LANGUAGES = 20


@dataclass(frozen=True, slots=True)
class VoiceDraft:
    """The description of a voice to be made.

    `text`: exact transcript of the recording; with it the voice speaks in context of the recording, without it from
    the speaker vector alone. `trailing_silence_ms` keeps the first word spoken from continuing the recording's last
    sound; 0 leaves the recording as it is.
    """

    name: str
    text: str | None = None
    languages: tuple[str, ...] = ()
    description: str = ""
    trailing_silence_ms: int = TRAILING_SILENCE_MS

    def validated(self) -> VoiceDraft:
        """The draft with name and languages in lower case and texts on one line. Raises BadVoice."""
        name = validated_name(self.name)
        text = None if self.text is None else _one_line(self.text, "text")
        if text == "":
            raise BadVoice("the text must not be empty; omit it to use the speaker vector alone", param="text")
        if len(self.languages) > MAX_LANGUAGES:
            message = f"a voice can list at most {MAX_LANGUAGES} languages, got {len(self.languages)}"
            raise BadVoice(message, param="language")
        languages = tuple(filter(None, (_one_line(language.lower(), "language") for language in self.languages)))
        return VoiceDraft(name, text, languages, _one_line(self.description, "description"), self.trailing_silence_ms)


def voice_from_recording(
    folder: Path, checkpoint: str, draft: VoiceDraft, file: bytes, limits: RecordingLimits
) -> StoredVoice:
    """Make a voice with the encoders of the Base checkpoint in `folder`; `checkpoint` is its name for the origin.

    Takes seconds and loads torch. Raises BadVoice, UnusableAudio, CheckpointError.
    """
    from .recording import read_recording
    from .speaker_encoder import SpeakerEncoder

    draft = draft.validated()
    pcm = read_recording(file, limits)
    codes = None
    if draft.text is not None:
        max_samples = round(limits.max_duration_s * SAMPLE_RATE_HZ)
        codes = _encode(folder, pcm, draft.trailing_silence_ms, max_samples)
    import torch

    vector = SpeakerEncoder.from_checkpoint(folder).encode(torch.from_numpy(pcm)).numpy()
    voice = ClonedVoice(draft.name, vector, draft.text, codes, draft.languages, draft.description)
    return StoredVoice(voice, _origin(checkpoint, speaker_space_id(folder), "recording"))


def voice_from_vector(
    folder: Path, checkpoint: str, draft: VoiceDraft, vector: NDArray[np.float32], width: int
) -> StoredVoice:
    """Make a voice from a speaker vector for a checkpoint whose vectors have `width` numbers. Raises BadVoice."""
    draft = draft.validated()
    voice = ClonedVoice(draft.name, vector, languages=draft.languages, description=draft.description)
    if len(voice.speaker_vector) != width:
        message = f"the vector must have {width} numbers for {checkpoint}, got {len(voice.speaker_vector)}"
        raise BadVoice(message, param="speaker_vector")
    return StoredVoice(voice, _origin(checkpoint, speaker_space_id(folder), "vector"))


def blend(draft: VoiceDraft, one: StoredVoice, other: StoredVoice, weight: float) -> StoredVoice:
    """Make a voice between two of the same model: `weight` 0 gives `one`, 1 gives `other`. Raises BadVoice.

    The speaker vectors are interpolated, and so are their lengths. The blend has no reference recording.
    """
    draft = draft.validated()
    if not 0 <= weight <= 1:
        raise BadVoice(f"the weight of the second voice must be between 0 and 1, got {weight:g}", param="weight")
    a, b = (stored.voice.speaker_vector.astype(np.float64) for stored in (one, other))
    if len(a) != len(b) or one.origin.space != other.origin.space:
        raise BadVoice(f"{one.name} and {other.name} were made with different models", param="voices")
    mixed = (1 - weight) * a + weight * b
    length = float(np.linalg.norm(mixed))
    if not length:
        raise BadVoice(f"{one.name} and {other.name} cancel each other out at this weight", param="weight")
    mixed *= ((1 - weight) * np.linalg.norm(a) + weight * np.linalg.norm(b)) / length
    languages = draft.languages or tuple(x for x in one.voice.languages if x in other.voice.languages)
    voice = ClonedVoice(draft.name, mixed.astype(np.float32), languages=languages, description=draft.description)
    source = f"blend of {one.name} and {other.name} at {weight:g}"
    return StoredVoice(voice, _origin(one.origin.checkpoint, one.origin.space, source))


def _one_line(text: str, param: str) -> str:
    """The text with every run of white space as one blank.

    Raises BadVoice for long texts and for control characters, which could control the terminal that shows them.
    """
    if len(text) > MAX_TEXT_CHARACTERS:
        message = f"the {param} must have at most {MAX_TEXT_CHARACTERS} characters, got {len(text)}"
        raise BadVoice(message, param=param)
    line = " ".join(text.split())
    if any(unicodedata.category(character) == "Cc" for character in line):
        raise BadVoice(f"the {param} must not contain control characters", param=param)
    return line


def _encode(folder: Path, pcm: Pcm, silence_ms: int, max_samples: int) -> NDArray[np.int64]:
    """Codes of a recording with silence appended, up to `max_samples` in all: int64 [frames, 16]."""
    import torch
    from voxgate.codecs.neural.checkpoint import CodecFormatError
    from voxgate.codecs.neural.encoder import CodecEncoder

    silence_samples = min(silence_ms * SAMPLE_RATE_HZ // 1000, max_samples - len(pcm))
    padded = np.concatenate([pcm, np.zeros(max(0, silence_samples), np.float32)])
    try:
        encoder = CodecEncoder.from_checkpoint(folder / "speech_tokenizer")
        codes: NDArray[np.int64] = encoder.encode(torch.from_numpy(padded)).numpy()
    except CodecFormatError as error:
        raise CheckpointError(str(error)) from error
    return codes


def _origin(checkpoint: str, space_id: str, source: str) -> VoiceOrigin:
    return VoiceOrigin(checkpoint, space_id, source, datetime.now(UTC).isoformat(timespec="seconds"))
