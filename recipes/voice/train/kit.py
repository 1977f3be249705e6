"""Packs what the training machine needs: text, tokenizer, hibari and the recipe itself, about 18 MB. (Kokoro is packed
by `train.speech.kokoro_weights`.)

    python -m train.kit W OUT              packs
    python -m train.kit --unpack OUT W     unpacks, on the training machine

The training machine has torch, numpy, tokenizers, safetensors, onnxruntime and scipy, but not this project. So the
steps that run there import nothing else; `text/` and the commands for word times run where the project is installed.
"""

from __future__ import annotations

import argparse
import lzma
import shutil
from pathlib import Path

from .speech import hibari

RECIPE = Path(__file__).parent


def pack(work: Path, out: Path) -> int:
    """Write the kit, and return its size in bytes."""
    out.mkdir(parents=True, exist_ok=True)
    with lzma.open(out / "train.txt.xz", "wb", preset=6) as packed:
        packed.write((work / "text/train.txt").read_bytes())
    shutil.copy(work / "text/tokenizer.json", out)
    hibari.fetch(out)
    shutil.copytree(RECIPE, out / "train", ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    return sum(path.stat().st_size for path in out.rglob("*") if path.is_file())


def unpack(kit: Path, work: Path) -> None:
    """Lay out the folder W as the training steps expect it."""
    text = work / "text"
    text.mkdir(parents=True, exist_ok=True)
    with lzma.open(kit / "train.txt.xz") as packed, (text / "train.txt").open("wb") as plain:
        shutil.copyfileobj(packed, plain)
    shutil.copy(kit / "tokenizer.json", text)
    hibari.unpack(next(kit.glob("hibari_tts-*.whl")), work / "hibari")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m train.kit")
    parser.add_argument("--unpack", action="store_true")
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    options = parser.parse_args()
    if options.unpack:
        unpack(options.source, options.target)
    else:
        print(f"{pack(options.source, options.target) / 1e6:.1f} MB")
