"""Step: makes other text for a run that continues earlier ones. `python -m train.text.further W OUT --read 280000`

Reads W/debian and W/text/train.txt; writes OUT/train.txt with lines as `corpus` does: every word and name in other
sentences, new fillings of the templates, prose that the earlier runs did not reach, and single words, which a voice
trained on sentences speaks worst.
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
from .corpus import EVALUATION, evaluation_sentences, is_held_out, spoken_forms
from .templates import Templates

SEED = 9
REPLIES, NUMBERS, PROSE, SINGLE_WORDS = 32_000, 16_000, 50_000, 6_000
NAME_REPETITIONS = 2
"""How often each name of a person or place occurs."""
_MAX_WORDS = 22
"""Words of a sentence of prose: speech is scarce, and shorter sentences give more beginnings and ends."""
_TEMPLATES = ("replies", "numbers", "words")


def written(debian: Path, word_counts: Counter[str], rng: random.Random) -> list[tuple[str, list[str]]]:
    """Each source with its written sentences."""
    templates = Templates(rng)
    names = words.names(debian)
    people = [sentence for _ in range(NAME_REPETITIONS) for sentence in words.carried(names, rng, words.PEOPLE)]
    places = [sentence for _ in range(NAME_REPETITIONS) for sentence in words.visited(debian, rng)]
    single_words = [word for word, _ in word_counts.most_common(SINGLE_WORDS) if len(word) > 1]
    return [
        ("replies", list(templates.sentences("replies.txt", REPLIES))),
        ("numbers", list(templates.sentences("numbers.txt", NUMBERS))),
        ("words", list(words.carried(words.everyday(debian), rng))),
        ("names", people + places),
        ("alone", [word + rng.choice(("", "?", "!")) for word in single_words]),
        ("replies", templates.fixed("replies.txt") * 3),
    ]


def unread(lines: Iterable[str]) -> list[tuple[str, str]]:
    """The first `PROSE` sentences of prose in `source<TAB>sentence` lines."""
    parted = [(source, said) for source, _, said in (line.partition("\t") for line in lines)]
    return [(source, said) for source, said in parted if source not in _TEMPLATES and said.count(" ") < _MAX_WORDS][
        :PROSE
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m train.text.further")
    parser.add_argument("work", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--read", type=int, default=0, metavar="N", help="lines read in the earlier runs")
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    corpus = (options.work / "text" / "train.txt").read_text("utf-8").splitlines()
    word_counts = Counter(word for line in corpus for word in re.findall(r"[a-z']+", line.partition("\t")[2]))
    excluded = evaluation_sentences(EVALUATION)
    lines = unread(corpus[options.read :])
    with multiprocessing.Pool() as pool:
        for name, sentences in written(options.work / "debian", word_counts, rng):
            said = (
                form
                for form in spoken_forms(pool, sentences)
                if form and form not in excluded and not is_held_out(form)
            )
            lines += [(name, one) for one in said]
    rng.shuffle(lines)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "train.txt").write_text("".join(f"{source}\t{said}\n" for source, said in lines), "utf-8")
    print("sentences of", dict(Counter(source for source, _ in lines)))


if __name__ == "__main__":
    main()
