"""Step: makes the training text. `python -m train.text.corpus W`

Reads W/debian; writes W/text/corpus.txt and W/text/held_out.txt, shuffled lines `source<TAB>sentence`. Sentences are in
the spoken form that the gateway gives to the voice's tokenizer, without duplicates. The same packages give the same
lines.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import random
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from multiprocessing.pool import Pool
from pathlib import Path

from voxgate.pipeline.text.sanitize import Sanitizer
from voxgate.pipeline.text.spoken_form import SpokenForm

from . import frequent, prose, words
from .sources import SOURCES, TextSource
from .templates import Templates


def spoken(written: str) -> str:
    """The text that the gateway gives to the tokenizer for a client's text; empty for text without spoken form."""
    sanitizer, form = Sanitizer(()), SpokenForm()
    said = form.push(sanitizer.push(written)).text + form.push(sanitizer.flush()).text + form.flush().text
    return said.rstrip(" ")


SEED = 8
HELD_OUT_PER_MILLE = 4
NUMBERS, REPLIES, SPELLED, LISTS = 75_000, 70_000, 24_000, 24_000
FIXED_REPLIES = 40
"""Copies of each reply without a variable part, such as "Yes.", because these are frequent in use."""
_SPELLED = "spelled"
"""Source whose sentences may have many single letters."""
_KNOWN_ENGLISH = ("replies", "numbers", _SPELLED, "lists", "words", "frequent", "wordnet", "gcide")
"""Sources that are not checked for unknown words."""
_BATCH_SENTENCES = 20_000
EVALUATION = Path(__file__).parents[2] / "eval" / "prompts"


def collect(work: Path, evaluation: frozenset[str]) -> list[tuple[str, str]]:
    """(source, sentence) in random order, without duplicates but for fixed replies."""
    rng = random.Random(SEED)
    seen = {"", *evaluation}
    debian = work / "debian"
    known = words.known(debian)
    replies = (spoken(reply) for reply in Templates(rng).fixed("replies.txt"))
    lines = [("replies", said) for said in replies if said not in seen for _ in range(FIXED_REPLIES)]
    with multiprocessing.Pool() as pool:
        for name, written, most in _written(work, rng):
            kept: list[tuple[str, str]] = []
            for said in spoken_forms(pool, written, spelled=name == _SPELLED):
                if said not in seen and (name in _KNOWN_ENGLISH or prose.is_english(said, known)):
                    seen.add(said)
                    kept.append((name, said))
                if len(kept) == most:
                    break
            lines += kept
            print(
                f"{name:12} {len(kept):7} sentences, {sum(said.count(' ') + 1 for _, said in kept):8} words", flush=True
            )
    rng.shuffle(lines)
    return lines


def _written(work: Path, rng: random.Random) -> Iterator[tuple[str, list[str], int]]:
    """Each source with its written sentences in random order, and the number wanted."""
    debian = work / "debian"
    templates = Templates(rng)
    # Templates come first, because a duplicate counts for the first source.
    yield "replies", list(templates.sentences("replies.txt", REPLIES)), REPLIES
    yield "numbers", list(templates.sentences("numbers.txt", NUMBERS)), NUMBERS
    yield _SPELLED, list(templates.sentences("spelled.txt", SPELLED)), SPELLED
    yield "lists", list(templates.sentences("lists.txt", LISTS)), LISTS
    yield "words", list(words.sentences(debian, rng)), sys.maxsize
    for source in SOURCES:
        found = _prose(debian, source)
        yield source.name, rng.sample(found, len(found)), source.max_sentences
    yield "frequent", list(frequent.from_packages(work, rng)), sys.maxsize


def _prose(debian: Path, source: TextSource) -> list[str]:
    found = (sentence for paragraph in source.paragraphs(debian) for sentence in prose.sentences(paragraph))
    return [sentence for sentence in dict.fromkeys(found) if prose.is_prose(sentence)]


def spoken_forms(pool: Pool, written: list[str], *, spelled: bool = False) -> Iterator[str]:
    """Yield the spoken forms in order, in batches, because often not all are needed. `spelled`: allow any letters."""
    usable = partial(_usable_spoken_form, spelled=spelled)
    for part in range(0, len(written), _BATCH_SENTENCES):
        yield from pool.imap(usable, written[part : part + _BATCH_SENTENCES], chunksize=500)


def _usable_spoken_form(written: str, *, spelled: bool) -> str:
    """The spoken form; empty if it is unsuitable."""
    said = spoken(written)
    return said if prose.is_readable(said, spelled=spelled) else ""


def is_held_out(sentence: str) -> bool:
    """Whether a sentence is held out, by its hash, so that it does not depend on other sentences."""
    return int(hashlib.md5(sentence.encode()).hexdigest(), 16) % 1000 < HELD_OUT_PER_MILLE


def evaluation_sentences(folder: Path) -> frozenset[str]:
    """Spoken forms of the evaluation sentences, one per line of `folder`/*.txt; `#` begins a comment."""
    lines = [line.strip() for path in sorted(folder.glob("*.txt")) for line in path.read_text("utf-8").splitlines()]
    written = [line.rpartition("\t")[2] for line in lines if line and not line.startswith("#")]
    return frozenset(spoken(part) for line in written for part in (line, *prose.sentences(line)))


def main(work: Path) -> None:
    lines = collect(work, evaluation_sentences(EVALUATION))
    text = work / "text"
    text.mkdir(exist_ok=True)
    parts = {"held_out.txt": list(dict.fromkeys(line for line in lines if is_held_out(line[1])))}
    parts["corpus.txt"] = [line for line in lines if not is_held_out(line[1])]
    for name, part in parts.items():
        (text / name).write_text("".join(f"{source}\t{said}\n" for source, said in part), "utf-8")
        print(name, len(part), "sentences,", sum(said.count(" ") + 1 for _, said in part), "words")
    print("sentences of", dict(Counter(source for source, _ in lines)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
