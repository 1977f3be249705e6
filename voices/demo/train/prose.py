"""Which sentences are worth reading aloud: paragraphs are cut into sentences, and what is no plain English goes."""

from __future__ import annotations

import re
from collections.abc import Iterator

SHORTEST, LONGEST = 2, 200
"""Characters of a sentence in its spoken form."""

_PLAIN = str.maketrans("\u2019\u2018\u201c\u201d\u2013\u00a0", "''\"\"- ", "\u200b\ufeff\u00ad")
_NO_END = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|St|Prof|Sr|Jr|Gen|Col|Capt|Lt|Rev|No|vs|cf|etc|e\.g|i\.e|viz|approx|esp|fig|vol|[A-Za-z])\.)$"
)
_MARKUP = re.compile(
    r"https?:|www\.|\.\w+/|[<>|\\{}#~^*=`@\[\]]|\w_|_\w|\(\)|\w\.\w{2,}|\b[a-z]+[A-Z]|[a-z]\d|\d[a-z](?![a-z]\b)"
    r"|--|\.\.\.\.|&\w+;|%\w|\$[a-zA-Z]|\w/\w|\w:\w*[A-Za-z]|\+"
)
_ODD_SPELLING = re.compile(r"\b(?=[a-z]{2,})[^aeiouy\W]+\b|(.)\1\1|[a-z]{18}")
_OFFENSIVE = re.compile(
    r"\b(?:nigg\w*|fuck\w*|shit\w*|cunt\w*|bitch\w*|whor\w*|rape[ds]?|rapist|raping|slut\w*|fag+ots?|penis\w*|vagina\w*"
    r"|copulat\w*|masturbat\w*|intercourse|porn\w*|nazi\w*|holocaust|suicid\w*|jewess|negro\w*|orgasm\w*|coition|pubic)\b",
    re.IGNORECASE,
)


def sentences(paragraph: str) -> Iterator[str]:
    """The sentences of a paragraph as written; abbreviations and initials end none."""
    paragraph = re.sub(r"\s+", " ", paragraph.translate(_PLAIN)).strip()
    begin = 0
    for match in re.finditer(r"[.?!]+[\"')]*\s+(?=[\"'(]*[A-Z0-9])", paragraph):
        mark = re.search(r"[.?!]", match[0])
        if mark is None or _NO_END.search(paragraph[begin : match.start() + 1]):
            continue
        yield paragraph[begin : match.end()].strip()
        begin = match.end()
    if begin < len(paragraph):
        yield paragraph[begin:]


def is_prose(written: str) -> bool:
    """Whether a written sentence is a whole one, in plain English."""
    bare = written.strip("\"'() ")
    words = bare.split()
    if len(words) < 3 or not written.rstrip("\"')").endswith((".", "?", "!")) or written.endswith("..."):
        return False
    if not (bare[0].isupper() or bare[0].isdigit()) or re.match(r"\d+\.", bare) or "(" in written[-4:]:
        return False
    if _MARKUP.search(written) or written.count("(") != written.count(")") or written.count('"') % 2:
        return False
    letters = sum(char.isalpha() or char in " ,.'" for char in written)
    capitals = sum(len(word) > 1 and word.isupper() for word in words)
    return letters >= 0.93 * len(written) and capitals <= 1 and written.count(";") + written.count(":") <= 2


def is_readable(spoken: str) -> bool:
    """Whether a spoken form can be read aloud without harm: length, pronounceable words, decent ones."""
    if not SHORTEST <= len(spoken) <= LONGEST or _ODD_SPELLING.search(spoken) or _OFFENSIVE.search(spoken):
        return False
    words = [word.strip(",.?!;:") for word in spoken.split()]
    return sum(len(word) == 1 and word not in "ai" for word in words) <= 1 + len(words) // 4
