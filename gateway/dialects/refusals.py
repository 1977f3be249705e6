"""Which errors refuse a message, and which end the utterance it was about."""

from __future__ import annotations

from ...pipeline.errors import BadMessage, TextTooLong
from ..errors import DuplicateUtterance, RateLimited, UnknownUtterance, UtteranceEnded

REFUSES_THE_MESSAGE = frozenset(
    error.code for error in (BadMessage, TextTooLong, RateLimited, UnknownUtterance, DuplicateUtterance, UtteranceEnded)
)
"""Codes of errors after which an utterance goes on, if there was one (docs/protocol.md, "Errors")."""
