"""Objects in the fields of a `start` message."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints
from voxgate.pipeline.text.lexicon.lexicon import MAX_SPOKEN_CHARACTERS, MAX_TERM_CHARACTERS

from .message_parsing import StrictMessage


class SamplingFields(StrictMessage):
    """Sampling options in a `start` message; None selects the voice's default."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_k: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(ge=1, le=2)] | None = None
    predictor_temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    predictor_top_k: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    predictor_top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    max_frames: Annotated[int, Field(ge=1, lt=2**31)] | None = None


class PronunciationFields(StrictMessage):
    """A term in a `start` message, and what is spoken for it."""

    term: Annotated[str, StringConstraints(max_length=MAX_TERM_CHARACTERS, pattern=r"\S")]
    spoken: Annotated[str, StringConstraints(max_length=MAX_SPOKEN_CHARACTERS, pattern=r"\S")]
    case_sensitive: bool = False
    word_boundaries: bool = True
