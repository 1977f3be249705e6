"""A voice made from a recording: what a talker needs to speak with it.

Apart from `voices.py` because the talker's prompt imports it, which `voices.py` imports.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .checkpoint.checkpoint import TalkerCheckpoint
from .errors import BadVoice
from .interface import EVERY_KEY, VoiceOwnership

MAX_REFERENCE_FRAMES = 375
"""Longest reference recording of a voice, 30 s; 5 to 15 s are best (docs/qwen3_tts.md, section 13, item 3)."""


@dataclass(frozen=True, slots=True, eq=False)
class ClonedVoice:
    """A voice from outside the checkpoint; it fits the checkpoint that it was made with, and no other.

    `speaker_vector`: float32 [talker hidden], from the speaker encoder. `reference_text` and `reference_codes`, int64
    [frames, groups], are both given or both absent: with them the talker continues the recording ("in context"),
    without them it has only the speaker vector. `languages`: languages of the voice besides the checkpoint's own.
    Raises BadVoice.
    """

    name: str
    speaker_vector: NDArray[np.float32]
    reference_text: str | None = None
    reference_codes: NDArray[np.int64] | None = None
    languages: tuple[str, ...] = ()
    description: str = ""
    ownership: VoiceOwnership = EVERY_KEY

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise BadVoice("a voice must have a name", param="name")
        vector = np.asarray(self.speaker_vector, np.float32)
        if vector.ndim != 1 or not np.isfinite(vector).all():
            raise BadVoice("the speaker vector must be one row of finite numbers", param="speaker_vector")
        object.__setattr__(self, "speaker_vector", vector)
        if (self.reference_text is None) != (self.reference_codes is None):
            raise BadVoice("a reference must have both its text and its codes", param="reference_text")
        if self.reference_text is not None and not self.reference_text.strip():
            raise BadVoice("the reference text must not be empty", param="reference_text")
        if self.reference_codes is not None:
            codes = np.asarray(self.reference_codes)
            if codes.ndim != 2 or not len(codes) or not np.issubdtype(codes.dtype, np.integer):
                raise BadVoice("reference codes must be integers [frames, groups]", param="reference_codes")
            object.__setattr__(self, "reference_codes", codes.astype(np.int64))

    @property
    def digest(self) -> str:
        """32 hexadecimal digits of what it was made from: equal where it speaks alike."""
        codes = b"" if self.reference_codes is None else self.reference_codes.tobytes()
        parts = (self.speaker_vector.tobytes(), (self.reference_text or "").encode(), codes)
        return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]

    @property
    def in_context(self) -> bool:
        return self.reference_codes is not None

    def check(self, checkpoint: TalkerCheckpoint) -> None:
        """Checks that the voice was made with a checkpoint like this one. Raises BadVoice, naming the difference."""
        if checkpoint.model_type == "voice_design":
            raise BadVoice("a voice-design model accepts no cloned voice")
        width = checkpoint.talker.hidden
        if len(self.speaker_vector) != width:
            raise BadVoice(
                f"the speaker vector must have {width} numbers for this model, got {len(self.speaker_vector)}: "
                "it was made with another model",
                param="speaker_vector",
            )
        codes = self.reference_codes
        if codes is None:
            return
        if checkpoint.model_type != "base":
            raise BadVoice("only base models speak in the context of a reference", param="reference_codes")
        if codes.shape[1] != checkpoint.groups or codes.min() < 0 or codes.max() >= checkpoint.codebook:
            raise BadVoice(
                f"reference codes must be [frames, {checkpoint.groups}] in [0, {checkpoint.codebook})",
                param="reference_codes",
            )
        if len(codes) > MAX_REFERENCE_FRAMES:
            raise BadVoice(
                f"the reference must have at most {MAX_REFERENCE_FRAMES} frames, got {len(codes)}",
                param="reference_codes",
            )
