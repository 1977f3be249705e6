"""Sentences full of frequent words, so that the voice knows their pronunciation better than that of rare ones.

Prose from dictionaries, manuals and games has many rare words, and words that people say every day only a few times:
"aisle" was once in the text of a run, "awesome" twice, and every voice said them wrong. Here the more frequent a word
is, the more often it comes; the frequencies are those of wordfreq (PyPI), from subtitles, news, books and the web.
"""

from __future__ import annotations

import gzip
import random
import re
import subprocess
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from .templates import lines
from .words import carried, everyday, names

PACKAGE = "wordfreq==3.1.1"
_DATA = "wordfreq/data/small_en.msgpack.gz"
COPIES = ((3_000, 24), (8_000, 12), (20_000, 6))
"""Copies of each word up to a rank."""
_SLOT = re.compile(r"\{(noun|verb|adjective|adverb)\}")
_WORDNET = {"noun": "noun", "verb": "verb", "adj": "adjective", "adv": "adverb"}


def fetch(work: Path) -> None:
    """Downloads the list with pip to W/wordfreq, unless it is there."""
    target = work / "wordfreq" / Path(_DATA).name
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(target.parent), PACKAGE]
    subprocess.run(command, check=True, timeout=1200)
    with zipfile.ZipFile(next(target.parent.glob("wordfreq-*.whl"))) as package:
        target.write_bytes(package.read(_DATA))


def ranked(work: Path) -> list[str]:
    """Words from the most to the least frequent, as the list has them, in lower case."""
    by_frequency = msgspec.msgpack.decode(gzip.decompress((work / "wordfreq" / Path(_DATA).name).read_bytes()))
    return [word for equally_frequent in by_frequency[1:] for word in equally_frequent]


def parts_of_speech(debian: Path) -> dict[str, str]:
    """The part of speech of WordNet's words, that with most tagged meanings: a slot of frequent.txt."""
    best: dict[str, tuple[int, str]] = {}
    for part, slot in _WORDNET.items():
        for line in (debian / f"usr/share/wordnet/index.{part}").read_text("utf-8").splitlines():
            if line.startswith("  "):
                continue
            fields = line.split()
            # lemma, part, meanings, pointers and their kinds, meanings again, tagged meanings, places
            tagged = int(fields[5 + int(fields[3])])
            best[fields[0]] = max(best.get(fields[0], (-1, "")), (tagged, slot))
    return {word: slot for word, (_, slot) in best.items()}


def sentences(
    words: Sequence[str], slots: dict[str, str], known: frozenset[str], rng: random.Random, frames: Sequence[str]
) -> Iterator[str]:
    """Sentences that have every known word as often as its rank among them says.

    `words` from the most frequent on; `slots`: their parts of speech; words without one come in carrier sentences.
    """
    chosen = [word for word in words if re.fullmatch(r"[a-z]{2,15}", word) and word in known]
    left: defaultdict[str, list[str]] = defaultdict(list)
    begin = 0
    for end, copies in COPIES:
        for word in chosen[begin:end]:
            left[slots.get(word, "")] += [word] * copies
        begin = end
    for pool in left.values():
        rng.shuffle(pool)
    yield from _framed(left, rng, frames)
    carriers = [word for pool in left.values() for word in pool]
    for part in range(0, len(carriers), 50_000):
        yield from carried(carriers[part : part + 50_000], rng)


def _framed(left: dict[str, list[str]], rng: random.Random, frames: Sequence[str]) -> Iterator[str]:
    """Sentences of the frames until a part of speech has no word left for a frame that is drawn."""
    while True:
        frame = rng.choice(frames)
        needed = _SLOT.findall(frame)
        if any(len(left[slot]) < needed.count(slot) for slot in needed):
            frames = [frame for frame in frames if all(len(left[slot]) > 4 for slot in _SLOT.findall(frame))]
            if not frames:
                return
            continue
        sentence = _SLOT.sub(lambda match: left[match[1]].pop(), frame)
        sentence = re.sub(r"\b([Aa]) (?=[aeio])", r"\1n ", sentence)
        yield sentence[0].upper() + sentence[1:]


def from_packages(work: Path, rng: random.Random) -> Iterator[str]:
    """The sentences of a corpus in `work`, whose packages were fetched."""
    debian = work / "debian"
    # Without abbreviations such as "fda", which are no words in lower case.
    known = frozenset(everyday(debian)) | {name.lower() for name in names(debian)}
    yield from sentences(ranked(work), parts_of_speech(debian), known, rng, lines("frequent.txt"))
