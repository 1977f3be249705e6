"""How much the voice model has room for, within what the settings allow."""

from __future__ import annotations

import logging
import math

from ..pipeline.speech import Synthesizer
from .settings import Settings, SettingsError

log = logging.getLogger(__name__)


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

    def check_voices(self) -> None:
        """Raises SettingsError when the model has not the voice that the settings name; warns of an alias for none."""
        voice, voices = self._settings.voice, self._synthesizer.voices
        listed = ", ".join(voices) or "none yet"
        if voice is not None and voice.lower() not in voices:
            raise SettingsError(f"voice {voice!r} is not one of the model's: {listed}")
        for name, meant in self._settings.aliases.items():
            if meant not in voices:  # it may still be made of a recording
                log.warning(
                    "voice_aliases: %s means %s, which is not one of the model's voices: %s", name, meant, listed
                )
