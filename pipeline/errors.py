"""The error tree: what can go wrong, named once and told apart by type and `code`, never by message text.

VoxgateError
├── RequestError            the client asked for something that cannot be; nothing was lost
│   ├── BadMessage          malformed, unknown or out-of-range field (`param` names it)
│   ├── UnknownVoice / UnknownLanguage / UnsupportedFormat / UnsupportedOption
│   ├── BadVoice            a voice given to the gateway cannot be spoken with
│   ├── VoiceExists / TooManyVoices
│   ├── UnusableAudio       a recording no voice can be made of
│   │   ├── UnreadableAudio     no sound file that is read here
│   │   ├── SilentAudio / ClippedAudio
│   │   └── AudioTooShort / AudioTooLong / AudioTooLarge
│   └── EmptyText / TextTooLong
├── AtCapacity              no room now; try again after `retry_after_ms`
└── EngineError             our side failed
    ├── EngineNotReady      still loading, or restarting
    ├── EngineLost          the engine died under this utterance
    ├── GenerationFailed    this utterance alone failed
    └── CloningFailed       a voice could not be made of a recording; speech is not concerned
"""

from __future__ import annotations

from typing import ClassVar


class VoxgateError(Exception):
    """Anything the gateway reports to a client as `error{code, message, retryable}`."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, param: str | None = None, retry_after_ms: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_ms = retry_after_ms


class RequestError(VoxgateError):
    """The client's request cannot be served as it is; repeating it unchanged will not help."""

    code = "bad_request"


class BadMessage(RequestError):
    """A message is malformed, of unknown type, or has a bad field, named in `param`."""

    code = "bad_message"


class UnknownVoice(RequestError):
    """The voice asked for is not offered; the message lists those that are."""

    code = "unknown_voice"


class UnknownLanguage(RequestError):
    """The language asked for is not one the voice speaks; the message lists those it does."""

    code = "unknown_language"


class UnsupportedFormat(RequestError):
    """The audio format asked for is not offered; the message lists those that are."""

    code = "unsupported_format"


class UnsupportedOption(RequestError):
    """An option this voice or model does not have, such as instructions for a model without them."""

    code = "unsupported_option"


class BadVoice(RequestError):
    """A voice handed in cannot be used with this model; `param` names the part of it that is wrong."""

    code = "bad_voice"


class VoiceExists(RequestError):
    """There is a voice of that name already."""

    code = "voice_exists"


class TooManyVoices(RequestError):
    """As many voices are kept as the limit allows; one has to be removed first."""

    code = "too_many_voices"


class UnusableAudio(RequestError):
    """No voice can be made of this recording; the message says what would be needed."""

    code = "unusable_audio"


class UnreadableAudio(UnusableAudio):
    """It is no sound file of a kind that is read here, or a broken one."""

    code = "unreadable_audio"


class SilentAudio(UnusableAudio):
    """There is next to nothing to hear in it."""

    code = "silent_audio"


class ClippedAudio(UnusableAudio):
    """It was recorded too loud: its peaks are cut off."""

    code = "clipped_audio"


class AudioTooShort(UnusableAudio):
    """It is too short to tell a voice from."""

    code = "audio_too_short"


class AudioTooLong(UnusableAudio):
    """It lasts longer than the limit."""

    code = "audio_too_long"


class AudioTooLarge(UnusableAudio):
    """The file has more bytes than the limit."""

    code = "audio_too_large"


class EmptyText(RequestError):
    """The utterance ended without anything to say."""

    code = "empty_text"


class TextTooLong(RequestError):
    """The utterance's text passes the limit; what was accepted before is still spoken."""

    code = "text_too_long"

    def __init__(self, limit: int, received: int) -> None:
        super().__init__(f"text is limited to {limit} characters an utterance; this would make {received}")
        self.limit = limit
        self.received = received


class AtCapacity(VoxgateError):
    """No talker slot became free within the bounded wait, or the queue is full."""

    code = "at_capacity"
    retryable = True


class EngineError(VoxgateError):
    """A failure on our side."""

    code = "engine_error"
    retryable = True


class EngineNotReady(EngineError):
    """The engine is still loading or is being rebuilt."""

    code = "engine_not_ready"


class EngineLost(EngineError):
    """The engine process died or hung while the utterance was under way."""

    code = "engine_lost"


class GenerationFailed(EngineError):
    """This utterance alone failed; others are unaffected."""

    code = "generation_failed"


class CloningFailed(EngineError):
    """A voice could not be made of a recording, through no fault of the recording's; speech is not concerned."""

    code = "cloning_failed"


class CheckpointError(VoxgateError):
    """The folder is not a usable checkpoint; the message names the file and what is wrong with it."""

    code = "bad_checkpoint"
