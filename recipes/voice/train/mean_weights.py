"""Step: the mean of what several runs made of the talker. `python -m train.mean_weights OUT COLLECTED COLLECTED ...`

Runs that went on from one another are near enough for their mean to be a talker again, and one that errs less than
each of them: what they have in common stays, what each has got wrong in its own way is evened out.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from .export import read_parts
from .run_files import save_weights

NAME = "talker"


def mean(runs: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """float32. Raises ValueError where the runs are not of one model."""
    shapes = [{name: value.shape for name, value in run.items()} for run in runs]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError("weights of different models have no mean")
    return {name: torch.stack([run[name].float() for run in runs]).mean(0) for name in runs[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="a folder; gets talker.safetensors")
    parser.add_argument("collected", type=Path, nargs="+", help="what train.collect wrote, of each run")
    args = parser.parse_args()
    save_weights(args.out / f"{NAME}.safetensors", mean([read_parts(folder, NAME) for folder in args.collected]))


if __name__ == "__main__":
    main()
