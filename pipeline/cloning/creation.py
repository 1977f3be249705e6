"""How a voice is made: of a recording, of a speaker vector, or of two other voices."""

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
MOST_TEXT = 1000
"""Characters that anyone says in the longest recording, with room to spare."""
MOST_LANGUAGES = 20


@dataclass(frozen=True, slots=True)
class VoiceDraft:
    """What is told about a voice that is to be made.

    `text`: what is said in the recording, word for word; with it the voice speaks in context, without it from the
    speaker vector alone. `trailing_silence_ms` goes behind the recording before it is encoded, or the first word
    spoken may go on with its last sound (spec section H.5); 0 leaves it as the reference does.
    """

    name: str
    text: str | None = None
    languages: tuple[str, ...] = ()
    description: str = ""
    trailing_silence_ms: int = TRAILING_SILENCE_MS

    def checked(self) -> VoiceDraft:
        """With its name and languages in lower case, and its text in one line. Raises BadVoice."""
        name = validated_name(self.name)
        text = None if self.text is None else _one_line(self.text, "text")
        if text == "":
            raise BadVoice("the text is empty; leave it out to use the speaker vector alone", param="text")
        if len(self.languages) > MOST_LANGUAGES:
            raise BadVoice(f"at most {MOST_LANGUAGES} languages are listed", param="language")
        languages = tuple(filter(None, (_one_line(language.lower(), "language") for language in self.languages)))
        return VoiceDraft(name, text, languages, _one_line(self.description, "description"), self.trailing_silence_ms)


def voice_from_recording(
    folder: Path, checkpoint: str, draft: VoiceDraft, file: bytes, limits: RecordingLimits
) -> StoredVoice:
    """Listen to a recording with the encoders of the Base checkpoint in `folder`, called `checkpoint`.

    Takes seconds and loads torch. Raises BadVoice, UnusableAudio, CheckpointError.
    """
    from .recording import read_recording
    from .speaker_encoder import SpeakerEncoder

    draft = draft.checked()
    pcm = read_recording(file, limits)
    codes = None
    if draft.text is not None:
        codes = _codes(folder, pcm, draft.trailing_silence_ms, round(limits.max_duration_s * SAMPLE_RATE_HZ))
    import torch

    vector = SpeakerEncoder.from_checkpoint(folder).encode(torch.from_numpy(pcm)).numpy()
    voice = ClonedVoice(draft.name, vector, draft.text, codes, draft.languages, draft.description)
    return StoredVoice(voice, _origin(checkpoint, speaker_space_id(folder), "recording"))


def voice_from_vector(
    folder: Path, checkpoint: str, draft: VoiceDraft, vector: NDArray[np.float32], width: int
) -> StoredVoice:
    """A voice of a given speaker vector, for a checkpoint that takes vectors of `width`. Raises BadVoice."""
    draft = draft.checked()
    voice = ClonedVoice(draft.name, vector, languages=draft.languages, description=draft.description)
    if len(voice.speaker_vector) != width:
        message = f"the vector has {len(voice.speaker_vector)} numbers where {checkpoint} takes {width}"
        raise BadVoice(message, param="speaker_vector")
    return StoredVoice(voice, _origin(checkpoint, speaker_space_id(folder), "vector"))


def blend(draft: VoiceDraft, one: StoredVoice, other: StoredVoice, weight: float) -> StoredVoice:
    """A voice between two of one model: `weight` 0 is `one`, 1 is `other`. Its recording is neither's.

    Vectors are mixed, and keep the length that lies between theirs. Raises BadVoice.
    """
    draft = draft.checked()
    if not 0 <= weight <= 1:
        raise BadVoice("the weight of the second voice is between 0 and 1", param="weight")
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
    """White space is a space; what steers a terminal is in no one's speech. Raises BadVoice."""
    if len(text) > MOST_TEXT:
        raise BadVoice(f"the {param} has at most {MOST_TEXT} characters", param=param)
    line = " ".join(text.split())
    if any(unicodedata.category(character) == "Cc" for character in line):
        raise BadVoice(f"the {param} has control characters", param=param)
    return line


def _codes(folder: Path, pcm: Pcm, silence_ms: int, most_samples: int) -> NDArray[np.int64]:
    import torch
    from voxgate.codecs.neural.checkpoint import CodecFormatError
    from voxgate.codecs.neural.encoder import CodecEncoder

    silence = min(silence_ms * SAMPLE_RATE_HZ // 1000, most_samples - len(pcm))
    padded = np.concatenate([pcm, np.zeros(max(0, silence), np.float32)])
    try:
        codes: NDArray[np.int64] = (
            CodecEncoder.from_checkpoint(folder / "speech_tokenizer").encode(torch.from_numpy(padded)).numpy()
        )
    except CodecFormatError as error:
        raise CheckpointError(str(error)) from error
    return codes


def _origin(checkpoint: str, space: str, source: str) -> VoiceOrigin:
    return VoiceOrigin(checkpoint, space, source, datetime.now(UTC).isoformat(timespec="seconds"))
