"""Creates utterances from `start` messages; everything that can be refused is refused here, before the queue."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
from voxgate.codecs.format import FormatError
from voxgate.codecs.pcm import FRAME_SAMPLES
from voxgate.pipeline.errors import (
    EngineNotReady,
    UnknownLanguage,
    UnknownVoice,
    UnsupportedFormat,
    UnsupportedOption,
    VoxgateError,
)
from voxgate.pipeline.interface import Speech, SpeechRequest, Synthesizer, VoiceInfo
from voxgate.pipeline.text.lexicon.lexicon import Lexicon

from ..errors import NOT_READY_RETRY_MS, QUOTED_CHARACTERS
from ..messages.client import Restore, Start
from ..messages.connection import Limits
from ..observability.utterance_figures import Change
from ..settings import Settings, SettingsError
from .admission import Ticket
from .checkpoints.trail import NO_TRAIL, Checkpoints, restorable
from .lookup.pronunciations import Pronunciations
from .lookup.stock_voices import StockVoices
from .outbox import EncoderFactory
from .utterance import ServerUtterance

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UtteranceFactory:
    """The voices, options and audio formats that this gateway offers."""

    settings: Settings
    synthesizer: Synthesizer
    encoder_factory: EncoderFactory
    key: str | None = None
    """Name of the API key of the client; None where keys are not configured."""
    stock_voices: StockVoices = field(default_factory=StockVoices)
    pronunciations: Pronunciations = field(default_factory=Pronunciations)
    checkpoints: Checkpoints | None = None
    """Makes checkpoints of utterances; None where they are switched off, or not wanted by the client."""

    def for_key(self, key: str | None, key_hash: str | None = None) -> UtteranceFactory:
        """The factory for clients with that key: it has no cloned voices of other keys, except shared ones."""
        checkpoints = None if self.checkpoints is None else self.checkpoints.for_key(key_hash)
        return replace(self, key=key, checkpoints=checkpoints)

    def without_checkpoints(self) -> UtteranceFactory:
        """The factory for clients that do not want checkpoints."""
        return replace(self, checkpoints=None)

    @property
    def voices(self) -> Mapping[str, VoiceInfo]:
        """Voices that the client may use, by lower-case name."""
        offered = self.synthesizer.voices
        if self.key is None:
            return offered
        return {name: voice for name, voice in offered.items() if voice.ownership.usable_by(self.key)}

    def _voice(self, name: str) -> VoiceInfo | None:
        """As `voices.get`, without going through all of them."""
        voice = self.synthesizer.voices.get(name.lower())
        return voice if voice is None or self.key is None or voice.ownership.usable_by(self.key) else None

    @property
    def default_voice(self) -> str:
        """Voice of utterances that name none; empty when there is none."""
        configured = self.settings.voice or self.synthesizer.default_voice
        if self.key is None or self._voice(configured) is not None:
            return configured
        return next(iter(self.voices), "")

    @property
    def limits(self) -> Limits:
        """Limits of a socket, for its client."""
        return self.settings.session_limits(self.synthesizer.max_characters)

    def find_voice(self, name: str) -> str:
        """Returns the voice for another service's voice name: the name in any case, an alias, or a fitting voice.

        Raises UnknownVoice; EngineNotReady while the model, and with it the voices, are not loaded.
        """
        voices, wanted = self.voices, name.lower()
        if wanted in voices:
            return wanted
        aliases = self.settings.aliases
        if (target := aliases.get(wanted, aliases.get("*", ""))) in voices:
            return target
        self._check_ready()
        if self.settings.stock_voices and (fitting := self.stock_voices.choose(name, voices, self.default_voice)):
            return fitting
        raise _unknown_voice(name, voices)

    def utterance(
        self,
        message: Start,
        number: int,
        dictionaries: tuple[Lexicon, ...] = (),
        *,
        clients_buffer: bool = False,
        holds_utterances: bool = False,
    ) -> ServerUtterance:
        """Creates an utterance that waits for its ticket. `clients_buffer`, `holds_utterances`: as of `WireProtocol`.

        Raises EngineNotReady, UnknownVoice, UnknownLanguage, UnsupportedOption, UnsupportedFormat, BadMessage.
        """
        self._check_ready()
        settings = self.settings
        request = message.request(self.default_voice, normalise=settings.normalise, trim_silence=settings.trim_silence)
        self._check(request)
        if digest := self.voices[request.voice.lower()].digest:
            request = replace(request, voice_digest=digest)
        if lexica := self.pronunciations.with_rules(message, dictionaries):
            request = replace(request, lexica=lexica)
        try:
            audio_format = message.format.audio_format()
            encoder = self.encoder_factory(audio_format)
        except FormatError as refused:
            raise UnsupportedFormat(str(refused), param=f"format.{refused.param}") from refused
        self.synthesizer.expect_utterance()
        utterance = ServerUtterance(
            message.utterance,
            number,
            request,
            audio_format,
            encoder,
            max_characters=settings.utterance_characters(self.synthesizer.max_characters),
            send_ahead_ms=self._send_ahead_ms(message, clients_buffer=clients_buffer),
            outbox_ms=self.settings.lookahead_ms,
            words=message.words,
            raw=message.framing == "raw",
            starving_ms=message.starving_ms if message.tells_starving else None,
            kept_ms=settings.max_send_ahead_ms if holds_utterances and settings.hold_max_ms else 0,
            utf16=message.offsets == "utf16",
            traceparent=message.traceparent,
        )
        if self.checkpoints is not None and restorable(audio_format, raw=utterance.raw):
            utterance.trail = self.checkpoints.trail(request, audio_format, request.voice_digest)
        if isinstance(message, Restore):
            _restore(utterance, message, self.limits.characters_per_utterance)
        return utterance

    def dictionaries(self, message: Start) -> tuple[Lexicon, ...] | None:
        """The dictionaries of an utterance; None when `load_dictionaries` has to load them."""
        return self.pronunciations.dictionaries(message, self.key)

    async def load_dictionaries(self, message: Start, caller: str) -> tuple[Lexicon, ...]:
        """As `Pronunciations.load_dictionaries`."""
        return await self.pronunciations.load_dictionaries(message, self.key, caller)

    def _send_ahead_ms(self, message: Start, *, clients_buffer: bool) -> int | None:
        most_ms = self.settings.max_send_ahead_ms
        if message.lead_ms is not None and message.lead_ms > most_ms:
            raise UnsupportedOption(f"lead_ms must be at most {most_ms}, got {message.lead_ms}", param="lead_ms")
        if message.pacing == "none":
            return None
        return message.lead_ms or (most_ms if clients_buffer else self.settings.send_ahead_ms)

    def rehearse(self) -> None:
        """Processes a text and encodes silence as for an utterance without options.

        The first one of a process would wait for patterns to be compiled and the encoder's library to be loaded.
        """
        message, settings = Start(type="start", utterance="rehearsal"), self.settings
        request = message.request(self.default_voice, normalise=settings.normalise, trim_silence=settings.trim_silence)
        self.synthesizer.rehearse(request)
        with suppress(FormatError):
            self.encoder_factory(message.format.audio_format()).push(np.zeros(FRAME_SAMPLES, np.float32))

    def prepare_speech(self, utterance: ServerUtterance) -> None:
        """Does of `speech` what needs no slot, while the answer to an utterance's request is on its way.

        One whose request may still change with its trail is not prepared. An error is raised by `speech` again.
        """
        if utterance.trail is NO_TRAIL:
            with suppress(VoxgateError):
                utterance.prepared_speech = self.synthesizer.prepare(utterance.request, utterance.text.beginning)

    def speech(self, utterance: ServerUtterance, ticket: Ticket) -> Speech:
        """Opens the speech of an utterance in the slot of a granted ticket. Raises what `Synthesizer.open` raises."""
        prepared, utterance.prepared_speech = utterance.prepared_speech, None
        request = utterance.trail.request(utterance.request)
        if (rewinding := utterance.retraction.rewinding) is not None:
            request = replace(request, past=rewinding.past, seed=rewinding.seed)
        if prepared is not None and request is utterance.request:
            return prepared.open(ticket.lease)
        if ticket.lease is None:
            return self.synthesizer.open(request)
        return self.synthesizer.open(request, ticket.lease)

    def _check_ready(self) -> None:
        if not self.synthesizer.state.speaks:
            raise EngineNotReady("the voice model is not ready", retry_after_ms=NOT_READY_RETRY_MS)

    def _check(self, request: SpeechRequest) -> None:
        if (voice := self._voice(request.voice)) is None:
            raise _unknown_voice(request.voice, self.voices)
        if request.language.lower() not in voice.languages:
            listed = ", ".join(voice.languages)
            raise UnknownLanguage(f"the language of this voice must be one of {listed}", param="language")
        if voice.needs_instructions and not (request.instructions or "").strip():
            raise UnsupportedOption("this voice requires instructions that describe it", param="instructions")
        if request.instructions and not voice.instructions:
            raise UnsupportedOption("this voice does not accept instructions", param="instructions")
        if request.visemes and not voice.visemes:
            reason = "visemes require a checkpoint with a phone table for its codec; this one has none"
            raise UnsupportedOption(reason, param="visemes")


def _restore(utterance: ServerUtterance, message: Restore, max_prepaid: int) -> None:
    """Has an utterance go on behind what the client has of it. Raises UnsupportedOption, CheckpointRefused.

    `max_prepaid`: characters that are charged ahead of their text; a client can announce more than it sends.
    """
    received = message.received
    utterance.figures.changes[Change.RESTORED] += 1
    utterance.trail.restore(message.seed, min(message.characters, max_prepaid))
    utterance.told.restore(received.words, received.words_end_ms, received.visemes)
    utterance.trail.present(message.checkpoint)
    utterance.outbox.skip(received.messages, utterance.pacer.skip, last=received.last)


def _unknown_voice(name: str, voices: Iterable[str]) -> UnknownVoice:
    listed = ", ".join(voices) or "none yet (this model speaks with cloned voices only)"
    return UnknownVoice(f"there is no voice {name[:QUOTED_CHARACTERS]!r}; available voices: {listed}", param="voice")


def check_configured_voices(settings: Settings, voices: Mapping[str, VoiceInfo]) -> None:
    """Raises SettingsError when the configured default voice does not exist; logs aliases of voices that do not."""
    listed = ", ".join(voices) or "none yet"
    if settings.voice is not None and settings.voice.lower() not in voices:
        raise SettingsError(f"voice must be one of {listed}, got {settings.voice!r}")
    for name, target in settings.aliases.items():
        if target not in voices:  # it can still be cloned
            log.warning("voice_aliases: %s stands for the unknown voice %s; known voices: %s", name, target, listed)
