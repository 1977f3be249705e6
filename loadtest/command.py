"""`voxgate bench ws`: steps of increasing load on a running server, or a search for its capacity."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from voxgate.client.address import ServerAddress

from .plan import BehaviourShares, LoadStep
from .processes import measure_step, processes_for
from .report import ProgressLine, html_report, summary
from .results import BUFFERS_MS, Slo, StepFigures, UtteranceResult, to_json
from .targets import TARGETS
from .targets.connection import TargetOptions

EPILOG = """targets:
{targets}

examples:
  voxgate bench ws                                     1, 4, then 8 virtual users on this machine's gateway
  voxgate bench ws --find --html report.html           find the capacity and write a report
  voxgate bench ws --rate 2,4,8 --seconds 60           new utterances at 2, 4, then 8 per second
  voxgate bench ws --streams 50 --barge-in 0.3 --abrupt 0.05
  voxgate bench ws --target vllm-omni --url ws://gpu-host:8091 --voice vivian --streams 1,8,32"""
_CONNECT_TIMEOUT_S = 10
_DEFAULT_STREAMS = (1, 4, 8)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG.format(targets="\n".join(f"  {name:<11}{about}" for name, about in TARGETS.items()))
    add = parser.add_argument
    add("--url", default="http://127.0.0.1:8000", help="address of the server (default: %(default)s)")
    add("--target", choices=TARGETS, default="voxgate", help="protocol of the server (default: %(default)s)")
    add("--voice", default="", help="voice to request (default: the server's)")
    add("--key", default=os.environ.get("VOXGATE_API_KEY", ""), help="API key (default: $VOXGATE_API_KEY)")
    add("--model", default="", help="model to request, for targets that need one")
    add("--frames", type=int, metavar="N", help="cut each utterance after N frames of 80 ms (voxgate, vllm-omni)")
    add("--codec", choices=("pcm", "opus"), default="pcm", help="codec, for target voxgate (default: %(default)s)")
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--streams", type=_numbers, metavar="N,N,...", help="concurrent virtual users; one step for each number"
    )
    size.add_argument(
        "--rate", type=_numbers, metavar="X,X,...", help="new utterances per second, open loop; one step for each"
    )
    size.add_argument("--find", action="store_true", help="search for the most streams without an underrun")
    add("--max-streams", type=int, default=1024, metavar="N", help="upper limit of --find (default: %(default)s)")
    add("--seconds", type=float, default=20, metavar="S", help="duration of a step (default: %(default)s)")
    add("--sentences", type=int, default=3, metavar="N", help="sentences per utterance (default: %(default)s)")
    add(
        "--words-per-s",
        type=float,
        default=25,
        metavar="X",
        help="pace of the text; 0 sends all of it at once (default: %(default)s)",
    )
    for name, what in (
        ("barge-in", "interrupt"),
        ("slow", "stop reading for 1.5 s"),
        ("abrupt", "cut the connection"),
    ):
        add(f"--{name}", type=_share, default=0.0, metavar="SHARE", help=f"share of virtual users that {what}, 0 to 1")
    add(
        "--buffer-ms",
        type=int,
        choices=BUFFERS_MS,
        default=200,
        help="objective: no underrun with this start buffer (default: %(default)s)",
    )
    add(
        "--first-audio-ms",
        type=float,
        default=500,
        metavar="MS",
        help="objective: 95th percentile of the time to first audio (default: %(default)s)",
    )
    add("--processes", type=_positive, metavar="N", help="client processes (default: one per 150 virtual users)")
    add("--pid", type=int, help="process of the server on this machine: reports its CPU time and memory")
    add("--seed", type=int, default=1, help="random seed of texts, arrivals and behaviours (default: %(default)s)")
    add("--jsonl", type=Path, metavar="FILE", help="write each utterance and each step as a line of JSON")
    add("--html", type=Path, metavar="FILE", help="write a report with plots")


def run(parsed: argparse.Namespace) -> int:
    """Returns 0 when every step met the objectives (with --find: when any did), 1 otherwise."""
    slo = Slo(parsed.buffer_ms, parsed.first_audio_ms)
    if (problem := asyncio.run(connection_problem(parsed.url))) is not None:
        text = f"no server answers at {parsed.url} ({problem}): start one, or name another address with --url"
        print(f"voxgate bench ws: {text}", file=sys.stderr)
        return 1
    lines = parsed.jsonl.open("w", encoding="utf-8") if parsed.jsonl is not None else None

    def write(line: str) -> None:
        if lines is not None:
            print(line, file=lines, flush=True)

    test = LoadTest(parsed, slo, write)
    try:
        capacity = asyncio.run(test.find_capacity() if parsed.find else test.run_steps())
    finally:
        if lines is not None:
            lines.close()
    print(summary(test.steps, slo, capacity))
    if parsed.html is not None:
        title = f"{parsed.target} under load"
        parsed.html.write_text(html_report(title, _facts(parsed), test.steps, slo, capacity), encoding="utf-8")
    passed = bool(capacity) if parsed.find else all(slo.violation(step) is None for step in test.steps)
    return 0 if passed else 1


async def connection_problem(url: str) -> str | None:
    """Returns why no TCP connection to the address can be opened; None if one can."""
    try:
        address = ServerAddress.parse(url)
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(address.host, address.port)
    except TimeoutError:
        return f"no connection within {_CONNECT_TIMEOUT_S:g} s"
    except (OSError, ValueError) as error:
        return str(error)
    writer.close()
    return None


class LoadTest:
    """Runs steps and keeps their figures; `write` gets lines of JSON."""

    def __init__(self, parsed: argparse.Namespace, slo: Slo, write: Callable[[str], None]) -> None:
        self.steps: list[StepFigures] = []
        self._parsed, self._slo, self._write = parsed, slo, write

    async def run_steps(self) -> None:
        """Runs the steps given on the command line."""
        if self._parsed.rate:
            for rate_per_s in self._parsed.rate:
                await self._run_step(rate_per_s=rate_per_s)
            return
        for streams in self._parsed.streams or _DEFAULT_STREAMS:
            await self._run_step(streams=round(streams))

    async def find_capacity(self) -> int:
        """Returns the most streams that meet the objectives."""
        search = CapacitySearch(first=1, limit=self._parsed.max_streams)
        while (streams := search.next) is not None:
            search.record(await self._run_step(streams=streams))
        return search.best

    async def _run_step(self, *, streams: int = 0, rate_per_s: float = 0.0) -> bool:
        parsed = self._parsed
        step = LoadStep(
            target=parsed.target,
            options=TargetOptions(parsed.url, parsed.voice, parsed.key, parsed.model, parsed.codec, parsed.frames),
            seconds=parsed.seconds,
            streams=streams,
            rate_per_s=rate_per_s,
            sentences=parsed.sentences,
            words_per_s=parsed.words_per_s,
            shares=BehaviourShares(parsed.barge_in, parsed.slow, parsed.abrupt),
            seed=parsed.seed + len(self.steps),
        )
        name = f"{streams} stream{'s' * (streams > 1)}" if streams else f"{rate_per_s:g}/s"
        progress = ProgressLine(name)

        def on_result(result: UtteranceResult) -> None:
            self._write(to_json({"step": name, **asdict(result)}))
            progress.count(result)

        pids = [] if parsed.pid is None else [parsed.pid]
        figures = await measure_step(name, step, processes_for(step, parsed.processes), on_result, pids)
        violation = self._slo.violation(figures)
        self._write(to_json({"step": name, "violation": violation, **asdict(figures)}))
        progress.end(violation)
        self.steps.append(figures)
        return violation is None


class CapacitySearch:
    """Finds the largest number of streams that passes: doubles until one fails, then bisects.

    Run a step with `next` streams and call `record`, until `next` is None; `best` is the result. It assumes that fewer
    streams pass wherever more do. The result is repeated, because a single run can pass by chance.
    """

    def __init__(self, first: int, limit: int, confirmations: int = 3) -> None:
        self._limit = limit
        self._passed = {0}
        self._failed = limit + 1
        self._trying = min(first, limit)
        self._confirmations = confirmations
        self._confirming = False

    @property
    def best(self) -> int:
        """The largest number that has passed, below all that failed."""
        return max(streams for streams in self._passed if streams < self._failed)

    @property
    def next(self) -> int | None:
        """The number to try now; None when the search has ended."""
        return self._trying or None

    def record(self, passed: bool) -> None:
        """Records whether the number of `next` has passed."""
        confirmed = passed and self._confirming
        self._confirming = False
        if passed:
            self._passed.add(self._trying)
        else:
            self._failed = self._trying
        self._trying = 0 if confirmed else self._choose()

    def _choose(self) -> int:
        best = self.best
        if self._failed > self._limit:
            if best < self._limit:
                return min(max(1, 2 * best), self._limit)
        elif best + max(1, best // 20) < self._failed:
            return (best + self._failed) // 2
        if best and self._confirmations:
            self._confirmations -= 1
            self._confirming = True
            return best
        return 0


def _facts(parsed: argparse.Namespace) -> dict[str, str]:
    shares = {"interrupt": parsed.barge_in, "read slowly": parsed.slow, "cut the connection": parsed.abrupt}
    behaviours = ", ".join(f"{share:.0%} {what}" for what, share in shares.items() if share)
    return {
        "server": parsed.url,
        "time": datetime.now().astimezone().isoformat(timespec="seconds"),
        "client": f"{platform.node()}, {len(os.sched_getaffinity(0))} cores",
        "text": f"{parsed.sentences} sentences, {parsed.words_per_s:g} words a second",
        "steps": f"{parsed.seconds:g} s, seed {parsed.seed}",
        "virtual users": behaviours or "all play to the end",
    }


def _numbers(text: str) -> Sequence[float]:
    numbers = [_number(part) for part in text.split(",")]
    if min(numbers) <= 0:
        raise argparse.ArgumentTypeError(f"must be numbers above 0, separated by commas, got {text!r}")
    return numbers


def _share(text: str) -> float:
    share = _number(text)
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1, got {text!r}")
    return share


def _positive(text: str) -> int:
    number = _number(text)
    if number < 1 or number != int(number):
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, got {text!r}")
    return int(number)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}") from None
