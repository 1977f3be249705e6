"""ElevenLabs' references to pronunciation dictionaries in requests and first messages."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from ...messages import MAX_DICTIONARIES

_Id = Annotated[str, Field(min_length=1, max_length=60)]


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
