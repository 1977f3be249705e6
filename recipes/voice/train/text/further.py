"""The text of a further run: what the runs before it have not read.

    python -m train.text.further W OUT --read 280000      reads W/debian and W/text/train.txt, writes OUT/train.txt

Every word and every name again, in other sentences; new fillings of the templates; prose that was left when the time
was up; and words alone, which a voice trained on sentences is least sure of. Lines are as those of `corpus`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from . import words
from .corpus import EVALUATION, evaluation_sentences, is_held_out, said_by
from .templates import Templates

SEED = 9
REPLIES, NUMBERS, PROSE, ALONE = 32_000, 16_000, 50_000, 6_000
PLACES_AND_PEOPLE = 2
"""How often each name comes."""
_MOST_WORDS = 22
"""Of a sentence of prose: speech is what there is least of, and longer ones give fewer ends and beginnings for it."""
_TEMPLATES = ("replies", "numbers", "words")


def written(debian: Path, heard: Counter[str], rng: random.Random) -> list[tuple[str, list[str]]]:
    """Each source's sentences as they are written."""
    templates = Templates(rng)
    names = words.names(debian)
    people = [sentence for _ in range(PLACES_AND_PEOPLE) for sentence in words.carried(names, rng, words.PEOPLE)]
    places = [sentence for _ in range(PLACES_AND_PEOPLE) for sentence in words.visited(debian, rng)]
    alone = [word for word, _ in heard.most_common(ALONE) if len(word) > 1]
    return [
        ("replies", list(templates.sentences("replies.txt", REPLIES))),
        ("numbers", list(templates.sentences("numbers.txt", NUMBERS))),
        ("words", list(words.carried(words.everyday(debian), rng))),
        ("names", people + places),
        ("alone", [word + rng.choice(("", "?", "!")) for word in alone]),
        ("replies", templates.fixed("replies.txt") * 3),
    ]


def unread(lines: Iterable[str]) -> list[tuple[str, str]]:
    """Prose of `source<TAB>sentence` lines, as much as is wanted."""
    parted = [(source, said) for source, _, said in (line.partition("\t") for line in lines)]
    return [(source, said) for source, said in parted if source not in _TEMPLATES and said.count(" ") < _MOST_WORDS][
        :PROSE
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m train.text.further")
    parser.add_argument("work", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--read", type=int, default=0, metavar="N", help="lines that the runs before got to")
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    corpus = (options.work / "text" / "train.txt").read_text("utf-8").splitlines()
    heard = Counter(word for line in corpus for word in re.findall(r"[a-z']+", line.partition("\t")[2]))
    left_out = evaluation_sentences(EVALUATION)
    lines = unread(corpus[options.read :])
    with multiprocessing.Pool() as pool:
        for name, sentences in written(options.work / "debian", heard, rng):
            said = (one for one in said_by(pool, sentences) if one and one not in left_out and not is_held_out(one))
            lines += [(name, one) for one in said]
    rng.shuffle(lines)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "train.txt").write_text("".join(f"{source}\t{said}\n" for source, said in lines), "utf-8")
    print("sentences of", dict(Counter(source for source, _ in lines)))


if __name__ == "__main__":
    main()
