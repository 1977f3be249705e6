"""`voxgate bench NAME`: runs one of the benchmarks that are installed."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from dataclasses import dataclass

from .failure import fail, missing_library


@dataclass(frozen=True, slots=True)
class Benchmark:
    """`module` has a `configure(parser)` and a `run(parsed) -> status`."""

    module: str
    summary: str


BENCHMARKS = {
    "ws": Benchmark("voxgate.loadtest.command", "put a running server under load: virtual users, ramps, a report"),
    "local": Benchmark("voxgate.benchmarks.local", "measure this machine with a gateway of its own"),
    "gpu": Benchmark("voxgate.benchmarks.gpu.command", "measure an NVIDIA GPU, with random weights of published sizes"),
}


def available() -> dict[str, Benchmark]:
    """The benchmarks of this installation: those of `voxgate.benchmarks` are not part of the wheel."""
    in_checkout = importlib.util.find_spec("voxgate.benchmarks") is not None
    return {
        name: benchmark
        for name, benchmark in BENCHMARKS.items()
        if in_checkout or not benchmark.module.startswith("voxgate.benchmarks.")
    }


def configure(parser: argparse.ArgumentParser) -> None:
    benchmarks = available()
    lines = [f"  {name:<8}{benchmark.summary}" for name, benchmark in benchmarks.items()]
    if len(benchmarks) < len(BENCHMARKS):
        others = ", ".join(name for name in BENCHMARKS if name not in benchmarks)
        lines.append(f"In a checkout, scripts/bench has more: {others}.")
    parser.epilog = "\n".join(["benchmarks:", *lines])
    parser.add_argument("name", choices=benchmarks, metavar="NAME", help="the benchmark to run")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="see 'voxgate bench NAME --help'")


def run(parsed: argparse.Namespace) -> int:
    command, benchmark = f"bench {parsed.name}", BENCHMARKS[parsed.name]
    try:
        module = importlib.import_module(benchmark.module)
    except ModuleNotFoundError as missing:
        return fail(command, missing_library("bench", str(missing.name)))
    summary = benchmark.summary[0].upper() + benchmark.summary[1:] + "."
    parser = argparse.ArgumentParser(prog=f"voxgate {command}", description=summary)
    module.configure(parser)
    status: int = module.run(parser.parse_args(parsed.options))
    return status
