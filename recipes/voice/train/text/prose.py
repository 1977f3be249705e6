"""Splits paragraphs into sentences, and selects those of plain English that can be read aloud."""

from __future__ import annotations

import re
from collections.abc import Iterator

MIN_CHARACTERS, MAX_CHARACTERS = 2, 200
"""Length of a sentence in its spoken form."""

_PLAIN = str.maketrans("\u2019\u2018\u201c\u201d\u2013\u00a0", "''\"\"- ", "\u200b\ufeff\u00ad")
_NO_END = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|St|Prof|Sr|Jr|Gen|Col|Capt|Lt|Rev|Co|Inc|Jan|Feb|Aug|Sept|Oct|Nov|Dec"
    r"|vs|cf|etc|e\.g|i\.e|viz|approx|esp|fig|vol|[A-Za-z])\.)$"
)
_MARKUP = re.compile(
    r"https?:|www\.|\.\w+/|[<>|\\{}#~^*=`@\[\]]|\w_|_\w|\(\)|\w\.\w{2,}|\b[a-z]+[A-Z]|[a-z]\d|\d[a-z](?![a-z]\b)"
    r"|\b(?:esp|approx|viz|cf|al|figs?|vol|pp|ed|sc|var)\.|\.\.\.\.|&\w+;|%\w|\$[a-zA-Z]|\w/\w|\w:\w*[A-Za-z]|\+"
)
_ODD_SPELLING = re.compile(r"(?<!')\b(?!(?:hmm|shh|psst|brr|tsk|nth)\b)[^aeiouy\W\d_]{2,}\b|(.)\1\1|[a-z]{18}")
"""Words without a vowel, which flite spells out, triple letters, and very long words."""
_OFFENSIVE = re.compile(
    r"\b(?:nigg\w*|fuck\w*|shit\w*|cunt\w*|bitch\w*|whor\w*|rape[ds]?|rapist|raping|slut\w*|fag+ots?|penis\w*|vagina\w*"
    r"|copulat\w*|masturbat\w*|intercourse|porn\w*|nazi\w*|holocaust|suicid\w*|jewess|negro\w*|orgasm\w*|coition|pubic)\b",
    re.IGNORECASE,
)


def sentences(paragraph: str) -> Iterator[str]:
    """The sentences of a paragraph as written; abbreviations and initials do not end one."""
    paragraph = _with_pauses(re.sub(r"\s+", " ", paragraph.translate(_PLAIN)).strip())
    begin = 0
    for match in re.finditer(r"[.?!]+[\"')]*\s+(?=[\"'(]*[A-Z0-9])", paragraph):
        before = paragraph[begin : match.start() + 1]
        numbered = before.endswith("No.") and paragraph[match.end()].isdigit()
        if numbered or _NO_END.search(before):
            continue
        yield paragraph[begin : match.end()].strip()
        begin = match.end()
    if begin < len(paragraph):
        yield paragraph[begin:]


def _with_pauses(paragraph: str) -> str:
    """Replace all dashes by the one that is spoken as a pause, and parentheses, which are not spoken, by commas."""
    paragraph = re.sub(r" ?\(([^()]*)\)(?=([.,;:?!]|$)|)", r", \1,", re.sub(r" ?--+ ?| - ", "\u2014", paragraph))
    return re.sub(r",+(?=[.,;:?!])", "", paragraph)


def is_prose(written: str) -> bool:
    """Whether a written sentence is complete and plain."""
    bare = written.strip("\"'() ")
    words = bare.split()
    if len(words) < 3 or not written.rstrip("\"')").endswith((".", "?", "!")) or written.endswith("..."):
        return False
    if not (bare[0].isupper() or bare[0].isdigit()) or re.match(r"\d+\.", bare) or "(" in written[-4:]:
        return False
    if _MARKUP.search(written) or written.count("(") != written.count(")") or written.count('"') % 2:
        return False
    letters = sum(char.isalpha() or char == " " for char in written)
    plain = sum(char.isalnum() or char in " ,.?!;:'\"-\u2014" for char in written)
    if letters < 0.75 * len(written) or plain < 0.97 * len(written):
        return False
    capitals = sum(len(word) > 1 and word.isupper() for word in words)
    return capitals <= 1 and written.count(";") + written.count(":") <= 2


def is_english(spoken: str, known: frozenset[str]) -> bool:
    """Whether three quarters of the words are in `known`; the others may be names."""
    words = re.findall(r"[a-z']+", spoken)
    return sum(word in known for word in words) >= 0.75 * len(words)


def is_readable(spoken: str, *, spelled: bool = False) -> bool:
    """Whether a spoken form has a suitable length, and only pronounceable and inoffensive words.

    `spelled`: whether single letters are welcome.
    """
    if not MIN_CHARACTERS <= len(spoken) <= MAX_CHARACTERS or _ODD_SPELLING.search(spoken) or _OFFENSIVE.search(spoken):
        return False
    words = [word.strip(",.?!;:") for word in spoken.split()]
    return spelled or sum(len(word) == 1 and word not in "ai" for word in words) <= 2 + len(words) // 4
