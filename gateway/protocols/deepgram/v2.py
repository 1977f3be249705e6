"""Deepgram Flux (`/v2/speak`): turns with ids, interrupts with the text that was heard, character counts."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from voxgate.pipeline.errors import BadMessage, TextTooLong, UnsupportedOption

from ...messages.server import ErrorMessage, InterruptedMessage
from ...session.protocol import ProtocolAction, ProtocolOutput
from ..catalog import MODEL, read_speed
from ..endpoint import WebSocketEndpoint
from ..payloads import json_message
from ..turn_queue import SpeechTurn
from .v1 import (
    VERSION,
    Deepgram,
    DeepgramMessage,
    DeepgramOptions,
    PlaybackOffset,
    read_options,
    refuse,
)


class DeepgramV2(Deepgram):
    """Flux: turns have ids, `Interrupt` names the audio that was played, the end reports counts."""

    def __init__(self, options: DeepgramOptions) -> None:
        super().__init__(options)
        self._ids: dict[str, str] = {}
        self._audio_before_ms = 0
        """Audio of all turns before the live one that the client has heard, in milliseconds."""
        self._interrupted_at_ms = 0
        self._characters = 0
        self._offset_given = False

    def _apply(self, incoming: DeepgramMessage) -> Iterable[ProtocolAction]:
        match incoming.type:
            case "Interrupt":
                return tuple(self._interrupt(incoming.playback_offset))
            case "Configure":
                return (self._configured(incoming.speed),)
            case "Flush" if self._turns.idle:
                return (self._warning("NO_ACTIVE_SPEECH", "there is no turn to flush"),)
        return super()._apply(incoming)

    def _interrupt(self, offset: PlaybackOffset | None) -> Iterable[ProtocolAction]:
        turn = self._turns.live
        if turn is None:
            yield self._warning("NO_ACTIVE_SPEECH", "there is no turn to interrupt")
        elif offset is not None and offset.value <= self._interrupted_at_ms and self._interrupted_at_ms:
            yield self._warning(
                "INVALID_INTERRUPT_OFFSET", "playback_offset must be larger than that of the last interrupt"
            )
        else:
            self._offset_given = offset is not None
            played_ms = None if offset is None else max(0, offset.value - self._audio_before_ms)
            yield from self._cut(turn, played_ms)

    def _configured(self, speed: float | None) -> ProtocolOutput:
        """Applies to the turns that begin from now on."""
        if speed is None:
            return json_message(type="ConfigureSuccess", applied={})
        try:
            self._options = replace(self._options, speed=read_speed(speed))
        except UnsupportedOption as refused:
            return json_message(
                type="ConfigureFailure", code="SPEED_NOT_SUPPORTED", field=refused.param, description=refused.message
            )
        self._turns.start = self._options.start
        return json_message(type="ConfigureSuccess", applied={"speed": speed})

    def _greeting(self) -> ProtocolOutput:
        options = self._options
        return json_message(
            type="Connected",
            request_id=options.request_id,
            model_name=options.voice,
            model_version=VERSION,
            model_uuids=[MODEL],
        )

    def _started(self, turn: SpeechTurn) -> Iterable[ProtocolOutput]:
        return (json_message(type="SpeechStarted", speech_id=self._id(turn)),)

    def _end_marks(self, turn: SpeechTurn) -> Iterable[ProtocolOutput]:
        if not turn.samples and not turn.error_sent:
            yield self._warning("NO_SYNTHESIZABLE_TEXT", "there is nothing to say in this text")
        self._audio_before_ms += self._audio_ms(turn)
        yield json_message(type="SpeechMetadata", **self._counts(turn))
        yield json_message(type="Flushed", speech_id=self._take_id(turn))

    def _interrupted(self, turn: SpeechTurn, message: InterruptedMessage) -> Iterable[ProtocolOutput]:
        self._turns.clear()
        self._audio_before_ms += message.played_ms
        self._interrupted_at_ms = self._audio_before_ms
        texts = {"text_spoken": message.text_spoken, "text_remaining": message.text_remaining}
        yield json_message(
            type="SpeechInterrupted",
            audio_played_ms=self._audio_before_ms,
            **(texts if self._offset_given else {}),
            metadata=self._counts(turn),
        )
        self._take_id(turn)

    def _error(self, error: ErrorMessage) -> ProtocolOutput:
        code = {BadMessage.code: "MESSAGE-0000", TextTooLong.code: "BIG-0000"}.get(error.code, "NET-0000")
        return json_message(type="Error", code=code, description=f"{error.code}: {error.message}")

    def _disconnect(self) -> Iterable[ProtocolOutput]:
        yield json_message(
            type="SessionMetadata",
            total_audio_duration_ms=self._audio_before_ms,
            total_input_character_count=self._characters,
            total_billable_character_count=self._characters,
        )
        yield from super()._disconnect()

    def _counts(self, turn: SpeechTurn) -> dict[str, Any]:
        self._characters += turn.characters
        return {
            "speech_id": self._id(turn),
            "audio_duration_ms": self._audio_ms(turn),
            "input_character_count": turn.characters,
            "billable_character_count": turn.characters,
            "controls_applied": {
                "pronunciations_applied": 0,
                "breaks_applied": turn.pauses,
                "pronunciation_warnings": 0,
            },
        }

    def _id(self, turn: SpeechTurn) -> str:
        return self._ids.setdefault(turn.name, f"dg_sp_{secrets.token_hex(6)}")

    def _take_id(self, turn: SpeechTurn) -> str:
        return self._ids.pop(turn.name)


ENDPOINT = WebSocketEndpoint(
    "/v2/speak",
    lambda request, factory: DeepgramV2(read_options(request, factory)),
    refuse,
    reads_when_idle=False,
)
