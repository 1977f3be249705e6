"""Language codes of other services, and the names that voices have for them."""

from __future__ import annotations

from ...pipeline.errors import UnknownLanguage

LANGUAGES = {
    "zh": "chinese",
    "en": "english",
    "ja": "japanese",
    "ko": "korean",
    "de": "german",
    "fr": "french",
    "ru": "russian",
    "pt": "portuguese",
    "es": "spanish",
    "it": "italian",
}
"""Names by ISO 639-1 code."""


def language_named(code: str | None, offered: tuple[str, ...]) -> str:
    """The language of an ISO 639-1 code, with or without a region; "auto" for none. Raises UnknownLanguage."""
    if not code:
        return "auto"
    name = LANGUAGES.get(code.lower().partition("-")[0])
    if name not in offered:
        listed = [each for each, language in LANGUAGES.items() if language in offered]
        raise UnknownLanguage(f"languages of this voice are {', '.join(listed)}", param="language_code")
    return name
