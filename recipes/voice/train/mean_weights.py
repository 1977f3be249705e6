"""Step: averages the talkers of several runs. `python -m train.mean_weights OUT COLLECTED COLLECTED ...`

The weights of runs that continued one another are close enough for their mean to be a working talker, with fewer errors
than each of them (Wortsman et al., "Model soups", 2022).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from .run_files import read_parts, save_weights

NAME = "talker"


def mean(runs: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Mean of each tensor, float32. Raises ValueError unless all runs have the same tensors."""
    shapes = [{name: value.shape for name, value in run.items()} for run in runs]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError("the runs must have the same tensors")
    return {name: torch.stack([run[name].float() for run in runs]).mean(0) for name in runs[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder to write talker.safetensors into")
    parser.add_argument("collected", type=Path, nargs="+", help="output of train.collect, for each run")
    args = parser.parse_args()
    save_weights(args.out / f"{NAME}.safetensors", mean([read_parts(folder, NAME) for folder in args.collected]))


if __name__ == "__main__":
    main()
