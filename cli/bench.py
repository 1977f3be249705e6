"""`voxgate bench NAME`: finds the measurement and hands over."""

from __future__ import annotations

import argparse
import importlib
import sys

BENCHES = {
    "local": "this machine alone: engine, codec and gateway in one process tree",
    "gpu": "an NVIDIA GPU, with random weights of the published sizes",
    "ws": "a server that runs already, ours or another's: listeners, ramps, a report",
    "words": "how exact the word times of the demo voice are; needs flite",
}
"""Each lives in `bench_<name>.py` with a `configure(parser)` and a `run(parsed)`."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "measurements:\n" + "\n".join(f"  {name:<10} {about}" for name, about in BENCHES.items())
    parser.add_argument("name", choices=BENCHES, metavar="NAME", help="what to measure")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="see 'voxgate bench NAME --help'")


def run(parsed: argparse.Namespace) -> int:
    try:
        module = importlib.import_module(f".bench_{parsed.name}", __package__)
    except ModuleNotFoundError as missing:
        print(f"voxgate bench: {parsed.name} is not installed: {missing}", file=sys.stderr)
        return 1
    parser = argparse.ArgumentParser(prog=f"voxgate bench {parsed.name}", description=BENCHES[parsed.name])
    module.configure(parser)
    status: int = module.run(parser.parse_args(parsed.options))
    return status
