"""Step: collects the results of a work folder. `python -m train.collect W OUT`

Writes the weights in files of at most 15.5 MB, for transfers with a size limit, and one archive of the logs. Steps that
have written no weights yet are skipped.
"""

from __future__ import annotations

import argparse
import tarfile
from collections.abc import Sequence
from pathlib import Path

from safetensors.torch import load_file, save_file

STEPS = ("talker", "decoder", "codes", "code_phones", "discriminators")
_MAX_PART_BYTES = 15_500_000


def split_weights(source: Path, out: Path) -> list[Path]:
    """Split `source` into OUT/NAME.0.safetensors, OUT/NAME.1.safetensors, ..., each of at most 15.5 MB."""
    parts: list[dict[str, object]] = [{}]
    size = 0
    for name, value in load_file(source).items():
        added = value.numel() * value.element_size()
        if size + added > _MAX_PART_BYTES:
            parts.append({})
            size = 0
        parts[-1][name] = value
        size += added
    paths = []
    for index, part in enumerate(parts):
        paths.append(out / f"{source.stem}.{index}.safetensors")
        save_file(part, paths[-1], metadata={"format": "pt"})
    return paths


def collect(work: Path, out: Path, steps: Sequence[str] = STEPS) -> list[Path]:
    """Write everything into `out`; returns the files."""
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for step in steps:
        if (work / f"{step}.safetensors").exists():
            written += split_weights(work / f"{step}.safetensors", out)
    archive = out / "logs.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for path in sorted((work / "logs").glob("*")):
            tar.add(path, arcname=path.name)
    return [*written, archive]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", default=",".join(STEPS), help="weights to collect")
    args = parser.parse_args()
    for path in collect(args.work, args.out, args.steps.split(",")):
        print(f"{path.name} {path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
