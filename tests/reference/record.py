"""Records the output of the reference implementation: `python record.py FOLDER SUBJECT...`, in its environment."""

from __future__ import annotations

import importlib
import sys
import tempfile
import time
from pathlib import Path

import numpy as np


def main(folder: str, *subjects: str) -> None:
    """Record subjects as FOLDER/SUBJECT.npz; without names, those of every file in `oracles` that can record."""
    here, out = Path(__file__).parent, Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    known = sorted(path.stem for path in (here / "oracles").glob("*.py") if path.stem not in ("__init__", "qwen"))
    with tempfile.TemporaryDirectory() as work:
        for subject in subjects or known:
            began = time.monotonic()
            said = importlib.import_module(f"oracles.{subject}").record(Path(work))
            np.savez_compressed(out / f"{subject}.npz", **said)
            size = (out / f"{subject}.npz").stat().st_size
            print(f"{subject}: {len(said)} arrays, {size >> 10} KiB, {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
