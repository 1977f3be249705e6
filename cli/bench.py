"""`voxgate bench NAME`: finds the measurement and hands over."""

from __future__ import annotations

import argparse
import importlib
import sys

MODULES = {
    "ws": "voxgate.loadtest.command",
    "local": "voxgate.benchmarks.local",
    "gpu": "voxgate.benchmarks.gpu.command",
    "words": "voxgate.benchmarks.words",
}
"""Modules with a `configure(parser)` and a `run(parsed)`. Those of `voxgate.benchmarks` exist in a checkout only."""

BENCHES = {
    "ws": "a running server, voxgate or another: listeners, ramps, a report",
    "local": "this machine alone: engine, codec and gateway in one process tree",
    "gpu": "an NVIDIA GPU, with random weights of the published sizes",
    "words": "how exact the word times of the demo voice are; needs flite",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "measurements:\n" + "\n".join(f"  {name:<10} {about}" for name, about in BENCHES.items())
    parser.add_argument("name", choices=BENCHES, metavar="NAME", help="what to measure")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="see 'voxgate bench NAME --help'")


def run(parsed: argparse.Namespace) -> int:
    try:
        module = importlib.import_module(MODULES[parsed.name])
    except ModuleNotFoundError as missing:
        if missing.name and missing.name.startswith("voxgate.benchmarks"):
            print(f"voxgate bench {parsed.name} needs a checkout: run scripts/bench {parsed.name}", file=sys.stderr)
        else:
            print(f"voxgate bench {parsed.name}: {missing.name} is not installed", file=sys.stderr)
        return 1
    parser = argparse.ArgumentParser(prog=f"voxgate bench {parsed.name}", description=BENCHES[parsed.name])
    module.configure(parser)
    status: int = module.run(parser.parse_args(parsed.options))
    return status
