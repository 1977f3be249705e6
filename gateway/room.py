"""How much the voice model has room for, within what the settings allow."""

from __future__ import annotations

import math

from ..pipeline.speech import Synthesizer
from .settings import Settings, SettingsError


class Room:
    """What admission asks, however many processes the gateway is."""

    def __init__(self, settings: Settings, synthesizer: Synthesizer) -> None:
        self._settings, self._synthesizer = settings, synthesizer

    def slots(self) -> int:
        """Utterances that may be under way at once."""
        limit, capacity = self._settings.active_utterances, self._synthesizer.capacity
        return capacity if limit is None else min(limit, capacity)

    def free_slots(self) -> float:
        """Slots of the talker's that are free. Without an engine nobody has to wait for one to be told so."""
        return self._synthesizer.free_slots if self._synthesizer.state.speaks else math.inf

    def check_voice(self) -> None:
        """Raises SettingsError when the model has not the voice that the settings name."""
        voice = self._settings.voice
        if voice is not None and voice not in self._synthesizer.voices:
            raise SettingsError(f"voice {voice!r} is not one of {', '.join(self._synthesizer.voices)}")
