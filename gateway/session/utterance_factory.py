"""From a `start` message to an utterance: what would fail after the queue fails here, before it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from voxgate.codecs.format import FormatError
from voxgate.pipeline.errors import EngineNotReady, UnknownLanguage, UnknownVoice, UnsupportedFormat, UnsupportedOption
from voxgate.pipeline.interface import Speech, SpeechRequest, Synthesizer

from ..messages import Limits, Start
from ..settings import Settings
from .admission import Ticket
from .outbox import EncoderFactory
from .utterance import ServerUtterance

_NOT_READY_RETRY_MS = 2000
_QUOTED_CHARACTERS = 64


def _unknown_voice(name: str, voices: Iterable[str]) -> UnknownVoice:
    listed = ", ".join(voices) or "none yet: this model speaks with voices made of recordings"
    return UnknownVoice(f"there is no voice {name[:_QUOTED_CHARACTERS]!r}; voices are {listed}", param="voice")


@dataclass(frozen=True, slots=True)
class UtteranceFactory:
    """What this gateway can speak, and in which formats."""

    settings: Settings
    synthesizer: Synthesizer
    encoder_factory: EncoderFactory

    @property
    def default_voice(self) -> str:
        return self.settings.voice or self.synthesizer.default_voice

    @property
    def limits(self) -> Limits:
        return self.settings.session_limits(self.synthesizer.max_characters)

    def find_voice(self, name: str) -> str:
        """The voice that a client of another service means by `name`: ours in any case, or an alias of the settings.

        Raises UnknownVoice, EngineNotReady (voices are known when the model is).
        """
        voices, wanted = self.synthesizer.voices, name.lower()
        if wanted in voices:
            return wanted
        aliases = self.settings.aliases
        if (meant := aliases.get(wanted, aliases.get("*", ""))) in voices:
            return meant
        self._check_ready()
        raise _unknown_voice(name, voices)

    def speech(self, request: SpeechRequest, ticket: Ticket) -> Speech:
        """Begin to speak with the slot that `ticket` was granted. Raises what `Synthesizer.open` does."""
        if ticket.lease is None:
            return self.synthesizer.open(request)
        return self.synthesizer.open(request, ticket.lease)

    def utterance(self, message: Start, number: int) -> ServerUtterance:
        """Raises EngineNotReady, UnknownVoice, UnknownLanguage, UnsupportedOption, UnsupportedFormat."""
        self._check_ready()
        request = message.request(self.default_voice, normalise=self.settings.normalise)
        self._check(request)
        try:
            audio_format = message.format.audio_format()
            encoder = self.encoder_factory(audio_format)
        except FormatError as refused:
            raise UnsupportedFormat(str(refused), param=f"format.{refused.param}") from refused
        return ServerUtterance(
            message.utterance,
            number,
            request,
            audio_format,
            encoder,
            max_characters=self.limits.characters_per_utterance,
            send_ahead_ms=self.settings.send_ahead_ms if message.pacing == "playback" else None,
            outbox_ms=self.settings.lookahead_ms,
            words=message.words,
        )

    def _check_ready(self) -> None:
        if not self.synthesizer.state.speaks:
            raise EngineNotReady("the voice model is not ready", retry_after_ms=_NOT_READY_RETRY_MS)

    def _check(self, request: SpeechRequest) -> None:
        voices = self.synthesizer.voices
        if (voice := voices.get(request.voice.lower())) is None:
            raise _unknown_voice(request.voice, voices)
        if request.language.lower() not in voice.languages:
            listed = ", ".join(voice.languages)
            raise UnknownLanguage(f"languages of this voice are {listed}", param="language")
        if voice.needs_instructions and not (request.instructions or "").strip():
            raise UnsupportedOption("this voice is made by instructions: describe it", param="instructions")
        if request.instructions and not voice.instructions:
            raise UnsupportedOption("this voice takes no instructions", param="instructions")
