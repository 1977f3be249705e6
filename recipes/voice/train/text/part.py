"""Step: selects the text of one run. `python -m train.text.part W [--part 0]`

Reads W/text/corpus.txt; writes W/text/train.txt with a part of the sentences of each source, because the teacher reads
only as many as there is time for. Another part is other text, for a run that continues.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

PARTS = {"frequent": 1, "spelled": 2, "lists": 1, "words": 3, "replies": 2, "numbers": 3}
"""Number of parts of a source; the text of a source with one part is in every run."""
_PARTS_OF_PROSE = 3


def selected(lines: list[str], part: int) -> list[str]:
    """The given part of `source<TAB>sentence` lines."""
    seen: Counter[str] = Counter()
    chosen = []
    for line in lines:
        source = line.partition("\t")[0]
        parts = PARTS.get(source, _PARTS_OF_PROSE)
        if seen[source] % parts == part % parts:
            chosen.append(line)
        seen[source] += 1
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m train.text.part", description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("--part", type=int, default=0)
    options = parser.parse_args()
    text = options.work / "text"
    lines = selected((text / "corpus.txt").read_text("utf-8").splitlines(), options.part)
    (text / "train.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    print(f"{len(lines)} sentences,", dict(Counter(line.partition("\t")[0] for line in lines)))


if __name__ == "__main__":
    main()
