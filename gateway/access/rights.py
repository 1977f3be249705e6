"""Rights of API keys, and which of them a route requires. A route without a requirement cannot be declared."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Right(StrEnum):
    """What an API key allows."""

    SPEAK = "speak"
    """Speech with the model's voices, with the key's own and with shared ones; tokens that do the same."""
    VOICES = "voices"
    """Making and removing cloned voices."""
    METRICS = "metrics"
    """Reading /metrics, which names every key."""


DEFAULT_RIGHTS: Final = frozenset({Right.SPEAK})
"""Rights of a key that lists none. The others concern more than the key's own speech, so they are given by name."""
TOKEN_RIGHTS: Final = frozenset({Right.SPEAK})
"""Rights that a token can have: browsers hold tokens."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a route requires of its client: one of some rights; with `key_only`, of an API key instead of a token."""

    one_of: frozenset[Right]
    key_only: bool = False


PUBLIC: Final = None
"""The requirement of a route that is open to every client."""
SPEAK: Final = Requirement(frozenset({Right.SPEAK}))
LIST_VOICES: Final = Requirement(frozenset({Right.SPEAK, Right.VOICES}))
MANAGE_VOICES: Final = Requirement(frozenset({Right.VOICES}))
READ_METRICS: Final = Requirement(frozenset({Right.METRICS}))
ISSUE_TOKENS: Final = Requirement(frozenset({Right.SPEAK}), key_only=True)


def parse_rights(names: str) -> frozenset[Right]:
    """The rights in "speak+voices". Raises ValueError, which lists the rights, for another name and for none."""
    try:
        return frozenset(Right(name) for name in names.split("+"))
    except ValueError:
        raise ValueError(f"rights must be {', '.join(Right)}, joined by +") from None
