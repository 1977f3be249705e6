"""Fields of ElevenLabs' messages and requests: voice settings, and references to pronunciation dictionaries."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from ...messages.parsing import MessageId, Whole
from ...messages.start_fields import MAX_DICTIONARIES
from ..catalog import read_speed

_Id = Annotated[str, Field(min_length=1, max_length=60), Whole]


class DictionaryLocator(BaseModel):
    """A dictionary; without `version_id` in its newest version."""

    model_config = ConfigDict(extra="ignore")

    pronunciation_dictionary_id: _Id
    version_id: _Id | None = None

    @property
    def name(self) -> str:
        """The dictionary as `Start.dictionaries` names it."""
        return f"{self.pronunciation_dictionary_id}:{self.version_id or ''}"


DictionaryLocators = Annotated[list[DictionaryLocator], Field(max_length=MAX_DICTIONARIES)] | None


def dictionary_names(locators: list[DictionaryLocator] | None) -> tuple[str, ...]:
    """The dictionaries in the form of `Start.dictionaries`."""
    return tuple(locator.name for locator in locators or ())


class VoiceSettings(BaseModel):
    """How a voice speaks. Other fields are accepted and ignored."""

    model_config = ConfigDict(extra="ignore")

    speed: Annotated[float | None, Field(allow_inf_nan=False)] = None

    @property
    def rate(self) -> float:
        """The rate of speech. Raises UnsupportedOption out of range."""
        return read_speed(self.speed, "voice_settings.speed")


class ElevenLabsMessage(BaseModel):
    """Any message of a client. Other fields (schedules) are accepted and ignored."""

    model_config = ConfigDict(extra="ignore")

    text: str | None = None
    context_id: MessageId | None = None
    voice_settings: VoiceSettings | None = None
    flush: bool | None = None
    close_context: bool | None = None
    close_socket: bool | None = None
    xi_api_key: str | None = Field(None, max_length=4096)
    pronunciation_dictionary_locators: DictionaryLocators = None
    """In the message that opens a context."""
