"""Step: takes the text side of a voice's talker. `python -m train.talker.text_side VOICE OUT`

Writes OUT/talker.safetensors: the weights of a checkpoint's talker without those that depend on its codes. A talker
with other codes that starts from them knows spelling already.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from torch import Tensor

from ..run_files import load_weights, save_weights
from .model import TalkerNetwork

_OF_CODES = (
    "model.codec_embedding.",
    "codec_head.",
    "code_predictor.model.codec_embedding.",
    "code_predictor.lm_head.",
)
_PREFIX = "talker."


def load_talker(talker: TalkerNetwork, state: dict[str, Tensor]) -> None:
    """Load weights, complete or without those that depend on codes. Raises ValueError for other weights."""
    missing, unexpected = talker.load_state_dict(state, strict=False)
    lacking = [name for name in missing if not name.startswith(_OF_CODES)]
    if lacking or unexpected:
        raise ValueError(f"the weights must be a talker's: missing tensors {lacking}, unexpected tensors {unexpected}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m train.talker.text_side")
    parser.add_argument("voice", type=Path, help="checkpoint folder")
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    named = {
        name.removeprefix(_PREFIX): value for name, value in load_weights(options.voice / "model.safetensors").items()
    }
    state = {name: value for name, value in named.items() if not name.startswith(_OF_CODES)}
    load_talker(TalkerNetwork(), state)
    save_weights(options.out / "talker.safetensors", state)


if __name__ == "__main__":
    main()
