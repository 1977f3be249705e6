"""The error tree. Errors are told apart by type and `code`, never by the text of their message.

VoxgateError
├── RequestError            the request cannot be served as it is
│   ├── BadMessage          a malformed, unknown or out-of-range field (`param` names it)
│   ├── UnknownVoice / UnknownLanguage / UnsupportedFormat / UnsupportedOption
│   ├── BadVoice            a voice given to the gateway does not fit the model
│   ├── VoiceExists / TooManyVoices
│   ├── UnknownDictionary / DictionaryExists / TooManyDictionaries    of pronunciations
│   ├── UnusableAudio       a recording from which no voice can be made
│   │   ├── UnreadableAudio     not a sound file of a supported kind, or damaged
│   │   ├── SilentAudio / ClippedAudio
│   │   └── AudioTooShort / AudioTooLong / AudioTooLarge
│   ├── EmptyText / TextTooLong
│   └── CheckpointRefused       an utterance cannot go on from this checkpoint
├── AtCapacity              no free slot; retry after `retry_after_ms`
├── EngineError             a failure of the speech engine
│   ├── EngineNotReady      still loading, or restarting
│   ├── EngineLost          the engine died or hung during this utterance
│   ├── GenerationFailed    this utterance alone failed
│   └── CloningFailed       making a voice failed; speech is not affected
└── CheckpointError         the folder of the voice model cannot be used; raised at the start, never to a client
"""

from __future__ import annotations

from typing import ClassVar


class VoxgateError(Exception):
    """An error that the gateway reports to a client as `error{code, message, retryable}`.

    `param`: the field of the request that is wrong. `retry_after_ms`: when to try again, for retryable errors.
    `reached`: the limit that refused the request, by its name in docs/limits.md, for errors that name one.
    """

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False
    ends_utterance: ClassVar[bool] = False
    """Whether the utterance whose message it answers ends; otherwise that message is refused."""

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        retry_after_ms: int | None = None,
        reached: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_ms = retry_after_ms
        self.reached = reached


class RequestError(VoxgateError):
    """The request cannot be served as it is; repeating it unchanged does not help."""

    code = "bad_request"


class BadMessage(RequestError):
    """A message is malformed, of unknown type, or has a wrong field, named in `param`."""

    code = "bad_message"


class UnknownVoice(RequestError):
    """The requested voice is not offered; the message lists those that are."""

    code = "unknown_voice"


class UnknownLanguage(RequestError):
    """The voice does not speak the requested language; the message lists those it does."""

    code = "unknown_language"


class UnsupportedFormat(RequestError):
    """The requested audio format is not offered; the message lists those that are."""

    code = "unsupported_format"


class UnsupportedOption(RequestError):
    """The voice or model lacks a requested option, such as instructions."""

    code = "unsupported_option"


class BadVoice(RequestError):
    """A voice that was given to the gateway does not fit this model; `param` names the wrong part."""

    code = "bad_voice"


class VoiceExists(RequestError):
    """A voice of that name exists already."""

    code = "voice_exists"


class TooManyVoices(RequestError):
    """The limit of stored voices is reached; one has to be removed first."""

    code = "too_many_voices"


class UnknownDictionary(RequestError):
    """There is no dictionary of pronunciations, or no version of it, with that id for this client."""

    code = "unknown_dictionary"


class DictionaryExists(RequestError):
    """The client has a dictionary of that name, of which it can have one."""

    code = "dictionary_exists"


class TooManyDictionaries(RequestError):
    """No further dictionary of pronunciations can be stored."""

    code = "too_many_dictionaries"


class UnusableAudio(RequestError):
    """No voice can be made from the recording; the message states the violated constraint."""

    code = "unusable_audio"


class UnreadableAudio(UnusableAudio):
    """The recording is not a sound file of a supported kind, or is damaged."""

    code = "unreadable_audio"


class SilentAudio(UnusableAudio):
    """The recording is nearly silent."""

    code = "silent_audio"


class ClippedAudio(UnusableAudio):
    """The recording is clipped: its peaks are cut off."""

    code = "clipped_audio"


class AudioTooShort(UnusableAudio):
    """The recording is shorter than the limit."""

    code = "audio_too_short"


class AudioTooLong(UnusableAudio):
    """The recording is longer than the limit."""

    code = "audio_too_long"


class AudioTooLarge(UnusableAudio):
    """The recording has more bytes than the limit."""

    code = "audio_too_large"


class EmptyText(RequestError):
    """The utterance ended without text to speak."""

    code = "empty_text"
    ends_utterance = True


class TextTooLong(RequestError):
    """The utterance's text exceeds the limit; text accepted before is still spoken."""

    code = "text_too_long"

    def __init__(self, limit: int, received: int) -> None:
        super().__init__(f"the text of an utterance must have at most {limit} characters, got {received}")
        self.limit = limit
        self.received = received


class CheckpointRefused(RequestError):
    """An utterance cannot go on from this checkpoint: it is forged, damaged, stale, too large, or of something else."""

    code = "checkpoint_refused"
    ends_utterance = True


class AtCapacity(VoxgateError):
    """No talker slot became free within the bounded wait, or the queue is full."""

    code = "at_capacity"
    retryable = True


class EngineError(VoxgateError):
    """The speech engine failed."""

    code = "engine_error"
    ends_utterance = True
    retryable = True


class EngineNotReady(EngineError):
    """The engine is loading or restarting."""

    code = "engine_not_ready"


class EngineLost(EngineError):
    """The engine died or hung during the utterance."""

    code = "engine_lost"


class GenerationFailed(EngineError):
    """This utterance failed; others are not affected."""

    code = "generation_failed"


class CloningFailed(EngineError):
    """Making a voice failed for a reason that is not in the recording; speech is not affected."""

    code = "cloning_failed"


class CheckpointError(VoxgateError):
    """The folder is not a usable checkpoint; the message names the file and the violated constraint."""

    code = "bad_checkpoint"
