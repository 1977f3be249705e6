"""A voice that was made from a recording: what a talker needs to speak with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .checkpoint import TalkerCheckpoint
from .errors import BadVoice

MAX_REFERENCE_FRAMES = 375
"""Longest reference recording of a voice, 30 s; 5 to 15 s are best (section H.5)."""


@dataclass(frozen=True, slots=True, eq=False)
class ClonedVoice:
    """A voice from outside the checkpoint. It fits the checkpoint that it was made with, and no other.

    `speaker_vector`: float32 [talker hidden], as the speaker encoder gives it. `reference_text` and `reference_codes`,
    int64 [frames, groups], come together: with them the talker goes on in the recording's own manner ("in context"),
    without them it has the speaker vector alone. `languages`: what the voice is said to speak, besides the
    checkpoint's own. Raises BadVoice.
    """

    name: str
    speaker_vector: NDArray[np.float32]
    reference_text: str | None = None
    reference_codes: NDArray[np.int64] | None = None
    languages: tuple[str, ...] = ()
    description: str = ""

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise BadVoice("a voice needs a name", param="name")
        vector = np.asarray(self.speaker_vector, np.float32)
        if vector.ndim != 1 or not np.isfinite(vector).all():
            raise BadVoice("a speaker vector is one row of finite numbers", param="speaker_vector")
        object.__setattr__(self, "speaker_vector", vector)
        if (self.reference_text is None) != (self.reference_codes is None):
            raise BadVoice("a reference needs both its text and its codes", param="reference_text")
        if self.reference_text is not None and not self.reference_text.strip():
            raise BadVoice("the reference text is empty", param="reference_text")
        if self.reference_codes is not None:
            codes = np.asarray(self.reference_codes)
            if codes.ndim != 2 or not len(codes) or not np.issubdtype(codes.dtype, np.integer):
                raise BadVoice("reference codes are whole numbers, [frames, groups]", param="reference_codes")
            object.__setattr__(self, "reference_codes", codes.astype(np.int64))

    @property
    def in_context(self) -> bool:
        return self.reference_codes is not None

    def check(self, checkpoint: TalkerCheckpoint) -> None:
        """Raises BadVoice, naming the part, when the voice was not made with a checkpoint like this one."""
        if checkpoint.model_type == "voice_design":
            raise BadVoice("a voice-design model speaks in no given voice")
        width = checkpoint.talker.hidden
        if len(self.speaker_vector) != width:
            raise BadVoice(
                f"the speaker vector has {len(self.speaker_vector)} numbers where this model takes {width}: "
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
                f"the reference has {len(codes)} frames, more than {MAX_REFERENCE_FRAMES}", param="reference_codes"
            )
