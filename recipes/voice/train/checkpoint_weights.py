"""Step: takes a checkpoint apart, so that training continues from it. `python -m train.checkpoint_weights VOICE OUT`

Writes OUT/talker.0.safetensors and OUT/decoder.0.safetensors with the names and shapes of the training steps, as
`train.collect` does; the reverse of `train.export`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from .export import END_FACTOR, HEAD, VOCABULARY_TABLES
from .run_files import save_weights
from .sizes import CODEC_EOS, TRAINED_ROWS

Weights = dict[str, Tensor]


def checkpoint_weights(voice: Path) -> dict[str, Weights]:
    """Weights of "talker" and "decoder" of the checkpoint in `voice`. Raises OSError."""
    talker = _without("talker.", load_file(voice / "model.safetensors"))
    for name in VOCABULARY_TABLES:
        talker[name] = talker[name][:TRAINED_ROWS]
    talker[HEAD][CODEC_EOS] /= END_FACTOR
    return {"talker": talker, "decoder": _without("decoder.", load_file(voice / "speech_tokenizer/model.safetensors"))}


def _without(prefix: str, weights: Weights) -> Weights:
    return {name.removeprefix(prefix): value for name, value in weights.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m train.checkpoint_weights", description=__doc__)
    parser.add_argument("voice", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    for name, weights in checkpoint_weights(args.voice).items():
        save_weights(args.out / f"{name}.0.safetensors", weights)


if __name__ == "__main__":
    main()
