"""Carrier sentences for every word of large word lists, so that the voice learns English spelling.

Includes names of people and places. The meaning of the sentences does not matter.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

_CARRIERS = (
    "{}.",
    "{}?",
    "{}!",
    "{} or {}?",
    "{} and {}.",
    "{}, {}, {}.",
    "{}, {}, and {}.",
    "{}, {}, {}, {}, {}.",
    "{} {}.",
    "{} {} {}.",
    "{} {} {} {}.",
    "The word is {}.",
    "The next word is {}.",
    "How do you say {}?",
    "What does {} mean?",
    "Is it {} or {}?",
    "It was {}, not {}.",
    "First {}, then {}, and finally {}.",
    "The words {} and {} sound alike.",
    "Please repeat after me: {}, {}, {}.",
    "Somebody wrote {} under the picture of {}.",
    "They called it {}, but we say {}.",
    "{} comes before {} in the dictionary.",
    "Look up {}, {} and {} in the index.",
    "I have never heard of {}.",
    "I typed {} instead of {}!",
    "You said {}, didn't you?",
    "She whispered {} and smiled.",
    "My notes only say {}, {}, and {}.",
    "Between {} and {} there is a line about {}.",
    "Without {}, there would be no {}.",
    "He talked about {} for an hour, and about {} for two.",
)
_PLACES = (
    "{}.",
    "{} and {}.",
    "{}, {} and {}.",
    "We drove from {} to {}.",
    "The train stops in {}, {} and {}.",
    "Have you ever been to {}?",
    "It is raining in {}.",
    "She was born in {} and lives near {}.",
    "The road from {} to {} is closed.",
    "My cousin moved to {} last year.",
    "Greetings from {}!",
    "The weather in {} is better than in {}.",
    "How far is it from {} to {}?",
    "{} is a small town near {}.",
)
PEOPLE = (
    "{}.",
    "{}?",
    "{} {}.",
    "{} {}!",
    "{}, {} and {}.",
    "{}, {}, {}, {}.",
    "Thanks, {}!",
    "Is that {}?",
    "I am {} {}.",
    "Mr. {} and Mrs. {} have arrived.",
    "Dr. {} is on the phone.",
    "{} knows {} from school.",
    "A letter for {} {} came this morning.",
    "{} wants to talk to {} about {}.",
    "Does {} still work with {}?",
    "They saw {} with {} in {}.",
    "{} and {} are waiting for you, {}.",
)


def everyday(debian: Path) -> list[str]:
    """Words of the large American list, without names and genitives."""
    return [word for word in _listed(debian, "large") if re.fullmatch(r"[a-z]{3,15}", word)]


def names(debian: Path) -> list[str]:
    """Names of people, peoples, places and brands in the large list."""
    return [word for word in _listed(debian, "large") if re.fullmatch(r"[A-Z][a-z]{2,13}", word)]


def known(debian: Path) -> frozenset[str]:
    """All words of the huge list with their forms, in lower case, to recognise English."""
    return frozenset(word.lower() for word in _listed(debian, "huge"))


def _listed(debian: Path, size: str) -> list[str]:
    return (debian / f"usr/share/dict/american-english-{size}").read_text("utf-8").split()


def places(debian: Path) -> list[str]:
    """Names of towns with weather stations, countries and provinces."""
    found = re.findall(r"<name>([^<]+)</name>", (debian / "usr/share/libgweather-4/Locations.xml").read_text("utf-8"))
    for code in ("3166-1", "3166-2"):
        listed = json.loads((debian / f"usr/share/iso-codes/json/iso_{code}.json").read_text("utf-8"))[code]
        found += [entry["name"] for entry in listed]
    return sorted({name for name in found if re.fullmatch(r"[A-Za-z' -]{3,24}", name)})


def carried(words: list[str], rng: random.Random, carriers: tuple[str, ...] = _CARRIERS) -> Iterator[str]:
    """Sentences with every word once, in random order."""
    left = rng.sample(words, len(words))
    while left:
        carrier = rng.choice(carriers)
        count = carrier.count("{}")
        if count <= len(left):
            sentence = carrier.format(*(left.pop() for _ in range(count)))
            yield sentence[0].upper() + sentence[1:]


def visited(debian: Path, rng: random.Random) -> Iterator[str]:
    """Sentences with every place once."""
    yield from carried(places(debian), rng, _PLACES)


def sentences(debian: Path, rng: random.Random) -> Iterator[str]:
    """Sentences with every word and every name once."""
    yield from carried(everyday(debian), rng)
    yield from carried(names(debian), rng)
    yield from visited(debian, rng)
