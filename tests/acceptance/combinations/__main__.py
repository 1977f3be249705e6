"""Runs seeds by hand: `python -m acceptance.combinations SEED [COUNT]`.

Prints the faults of every failing seed; for one seed also its steps, and those that the faults need.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from .machine import execute, report, shrink
from .program import generate
from .world import Files


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int, nargs="?", default=1)
    parser.add_argument("--quiet", action="store_true", help="only count the kinds of faults")
    options = parser.parse_args()
    kinds: Counter[str] = Counter()
    examples: dict[str, int] = {}
    failures = 0
    with tempfile.TemporaryDirectory(prefix="combinations-") as folder:
        files = Files.make(Path(folder))
        execute(generate(0), files)  # loads what is loaded once
        gc.collect()
        gc.freeze()
        began_s = time.process_time()
        for seed in range(options.seed, options.seed + options.count):
            outcome = execute(generate(seed), files)
            if options.count == 1:
                print(report(outcome))
            if outcome.faults:
                failures += 1
                for kind in outcome.kinds:
                    kinds[kind] += 1
                    examples.setdefault(kind, seed)
                if options.count > 1 and not options.quiet:
                    print(f"seed {seed}: {'; '.join(outcome.faults)[:300]}", flush=True)
                if options.count == 1:
                    print(f"\nwith as few steps as possible\n{report(shrink(outcome, files))}\n", flush=True)
        each_ms = 1000 * (time.process_time() - began_s) / options.count
    for kind, count in kinds.most_common():
        print(f"{count:6} x {kind} (seed {examples[kind]})")
    print(f"{options.count} runs, {failures} failed, {each_ms:.1f} ms of processor time each")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
