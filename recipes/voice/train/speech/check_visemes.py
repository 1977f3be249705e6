"""Step: measures mouth shapes. `python -m train.speech.check_visemes W [--checkpoint FOLDER]`

The teacher reads sentences that the phone table was not trained on (W/text/held_out.txt), and the tokenizer
(W/codes.safetensors) encodes them. The mouth shapes of the codes are compared with those of the teacher's phones, whose
durations are exact.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from voxgate.pipeline.alignment.phones import load_phone_table
from voxgate.pipeline.alignment.scorer import HOP_MS
from voxgate.pipeline.alignment.visemes import PHONE_VISEMES, VISEMES, CodeVisemes, code_visemes
from voxgate.pipeline.checkpoint.checkpoint import load_checkpoint

from .hibari import Hibari, unpacked
from .reading import PHONES
from .synthesis import GAIN, sentence
from .word_times import first_codes, readings

SENTENCES = 120
"""Number of sentences."""
CLOSED = VISEMES.index("PP")
"""The closed lips, which are seen most if they are missing."""
TOLERANCE_HOPS = 1

VISEME_OF_PHONE = np.array([VISEMES.index(PHONE_VISEMES[phone]) for phone in PHONES], np.uint8)
"""By the number of a phone."""


@dataclass(slots=True)
class VisemeErrors:
    """Figures of mouth shapes, beside those of the teacher."""

    hops: int = 0
    right: int = 0
    near: int = 0
    """Hops whose shape is the teacher's at most `TOLERANCE_HOPS` before or after."""
    closures: int = 0
    """Closures of the lips by the teacher's phones."""
    closures_found: int = 0
    closures_made: int = 0
    """Closures that were shown."""
    closures_false: int = 0
    """Of these, those of which the teacher has none at most `TOLERANCE_HOPS` before or after."""
    start_errors_ms: list[int] = field(default_factory=list)
    """Of the closures found."""

    def add(self, shown: NDArray[np.uint8], true: NDArray[np.uint8]) -> None:
        """Counts a sentence: the number of the viseme in each hop, uint8 [hops], shown and true."""
        padded = np.pad(true, TOLERANCE_HOPS, mode="edge")
        around = np.lib.stride_tricks.sliding_window_view(padded, 2 * TOLERANCE_HOPS + 1)
        self.hops += len(true)
        self.right += int((shown == true).sum())
        self.near += int((shown[:, None] == around).any(axis=1).sum())
        made, wanted = _closures(shown), _closures(true)
        self.closures += len(wanted)
        self.closures_made += len(made)
        self.closures_false += sum(not _near(each, wanted) for each in made)
        for closure in wanted:
            if found := _near(closure, made):
                self.closures_found += 1
                self.start_errors_ms.append(HOP_MS * abs(found[0].start - closure.start))

    def table(self) -> str:
        """The figures as lines of text."""
        median_ms, p90_ms = np.percentile(self.start_errors_ms or [0], [50, 90])
        within_ms = TOLERANCE_HOPS * HOP_MS
        lines = (
            f"hops right: {self.right / self.hops:.1%}, within {within_ms} ms: {self.near / self.hops:.1%}",
            f"lip closures found: {self.closures_found} of {self.closures}",
            f"their start is {median_ms:.0f} ms off at the median, {p90_ms:.0f} ms at p90",
            f"lip closures shown: {self.closures_made}, of which false: {self.closures_false}",
        )
        return "\n".join(lines)


def _closures(visemes: NDArray[np.uint8]) -> list[range]:
    """The runs of hops with closed lips."""
    runs, at = [], 0
    for viseme, group in groupby(visemes.tolist()):
        length = len(list(group))
        if viseme == CLOSED:
            runs.append(range(at, at + length))
        at += length
    return runs


def _near(run: range, others: list[range]) -> list[range]:
    """Those of `others` that overlap `run` or lie at most `TOLERANCE_HOPS` beside it."""
    return [o for o in others if o.start < run.stop + TOLERANCE_HOPS and run.start < o.stop + TOLERANCE_HOPS]


def check(texts: list[str], teacher: Hibari, visemes: CodeVisemes, weights: Path) -> VisemeErrors:
    """Measures the sentences that the teacher can read."""
    errors, encode = VisemeErrors(), first_codes(weights)
    for _, reading in readings(texts, teacher):
        recorded = sentence(reading, GAIN)
        errors.add(visemes[encode(recorded.samples)].ravel(), VISEME_OF_PHONE[recorded.phones.ravel()])
    return errors


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m train.speech.check_visemes", description=__doc__)
    parser.add_argument("work", type=Path, help="with text/held_out.txt and codes.safetensors")
    parser.add_argument("--weights", type=Path, help="folder of the tokenizer's weights (default: the work folder)")
    parser.add_argument("--checkpoint", type=Path, default=Path(__file__).parents[4] / "voices" / "demo")
    parser.add_argument("--sentences", type=int, default=SENTENCES)
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = load_phone_table(load_checkpoint(options.checkpoint))
    if table is None or (visemes := code_visemes(table)) is None:
        raise SystemExit(
            f"{options.checkpoint} has no phone table for its codes; run python -m train.speech.word_times"
        )
    lines = (options.work / "text" / "held_out.txt").read_text("utf-8").splitlines()
    texts = [line.rpartition("\t")[2] for line in lines[: options.sentences]]
    errors = check(texts, Hibari(unpacked(options.work / "hibari")), visemes, options.weights or options.work)
    print(errors.table())


if __name__ == "__main__":
    main()
