"""The most streams that are carried: doubled until too many, then halved in between."""
# TODO-DOC `voxgate bench ws`: listeners by the dozen or the thousand against a server that runs already.

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

from .plan import BehaviourShares, LoadStep
from .process_tree import tree_usage
from .processes import processes_for, run_step
from .report import ProgressLine, html_report, summary
from .results import BUFFERS_MS, Slo, StepFigures, UtteranceResult, figures, to_json
from .targets import TARGETS
from .targets.connection import TargetOptions

_CONFIRMATIONS = 3


class CapacitySearch:
    """Ask `next`, try that many, `tell` how it went; `best` is the result once `next` is None.

    Supposes that who carries n streams carries fewer. The result is tried again, because a single run can be lucky.
    """

    def __init__(self, first: int, limit: int) -> None:
        self._limit = limit
        self._carried = {0}
        self._too_many = limit + 1
        self._trying = min(first, limit)
        self._confirmations = _CONFIRMATIONS
        self._confirming = False

    @property
    def best(self) -> int:
        """The most that was carried, as far as is known."""
        return max(streams for streams in self._carried if streams < self._too_many)

    @property
    def next(self) -> int | None:
        """How many to try now; None when the search is over."""
        return self._trying or None

    def tell(self, carried: bool) -> None:
        """The number of `next` was carried, or was too many."""
        confirmed = carried and self._confirming
        self._confirming = False
        if carried:
            self._carried.add(self._trying)
        else:
            self._too_many = self._trying
        self._trying = 0 if confirmed else self._choose()

    def _choose(self) -> int:
        best = self.best
        if self._too_many > self._limit:
            if best < self._limit:
                return min(max(1, 2 * best), self._limit)
        elif best + max(1, best // 20) < self._too_many:
            return (best + self._too_many) // 2
        if best and self._confirmations:
            self._confirmations -= 1
            self._confirming = True
            return best
        return 0


EPILOG = """targets:
{targets}

examples:
  voxgate bench ws                                     one, four, then eight listeners at this machine's gateway
  voxgate bench ws --find --html report.html           the most streams without an underrun, and a page about it
  voxgate bench ws --rate 2,4,8 --seconds 60           utterances that arrive by themselves, so many a second
  voxgate bench ws --streams 50 --barge-in 0.3 --abrupt 0.05
  voxgate bench ws --target vllm-omni --url ws://gpu-host:8091 --voice vivian --streams 1,8,32"""


_CONNECT_TIMEOUT_S = 10


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG.format(targets="\n".join(f"  {name:<11}{about}" for name, about in TARGETS.items()))
    add = parser.add_argument
    add("--url", default="http://127.0.0.1:8000", help="the server (default: %(default)s)")
    add("--target", choices=TARGETS, default="voxgate", help="what it speaks (default: %(default)s)")
    add("--voice", default="", help="voice to ask for")
    add("--key", default=os.environ.get("VOXGATE_API_KEY", ""), help="API key (default: $VOXGATE_API_KEY)")
    add("--model", default="", help="model, where the target wants one")
    add("--frames", type=int, metavar="N", help="cut each utterance after N frames of 80 ms (voxgate, vllm-omni)")
    add("--codec", choices=("pcm", "opus"), default="pcm", help="for target voxgate (default: %(default)s)")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--streams", type=_numbers, metavar="N,N,...", help="listeners at once, turn after turn")
    size.add_argument("--rate", type=_numbers, metavar="X,X,...", help="utterances a second, open loop")
    size.add_argument("--find", action="store_true", help="search for the most streams without an underrun")
    add("--most", type=int, default=1024, metavar="N", help="where --find stops (default: %(default)s)")
    add("--seconds", type=float, default=20, metavar="S", help="length of a step (default: %(default)s)")
    add("--sentences", type=int, default=3, metavar="N", help="of each utterance (default: %(default)s)")
    add("--words-per-s", type=float, default=25, metavar="X", help="pace of the text, 0 at once (default: %(default)s)")
    for name, what in (
        ("barge-in", "interrupts"),
        ("slow", "stops reading for 1.5 s"),
        ("abrupt", "cuts the connection"),
    ):
        add(f"--{name}", type=_share, default=0.0, metavar="SHARE", help=f"share of listeners that {what}")
    add(
        "--buffer-ms",
        type=int,
        choices=BUFFERS_MS,
        default=200,
        help="start buffer of the verdict (default: %(default)s)",
    )
    add("--first-audio-ms", type=float, default=500, metavar="MS", help="p95 of the verdict (default: %(default)s)")
    add("--processes", type=int, metavar="N", help="client processes (default: as many as it takes)")
    add("--pid", type=int, help="the server's process on this machine, to tell its CPU time and memory")
    add("--seed", type=int, default=1, help="of texts, arrivals and manners (default: %(default)s)")
    add("--jsonl", type=Path, metavar="FILE", help="write every utterance and every step there, a JSON object a line")
    add("--html", type=Path, metavar="FILE", help="write a report with plots there")


def run(parsed: argparse.Namespace) -> int:
    """0 when every step was carried (with --find: any was), 1 otherwise."""
    slo = Slo(parsed.buffer_ms, parsed.first_audio_ms)
    if not asyncio.run(is_reachable(parsed.url)):
        print(
            f"voxgate bench ws: nobody listens at {parsed.url}: start a server, or name it with --url", file=sys.stderr
        )
        return 1
    lines = parsed.jsonl.open("w", encoding="utf-8") if parsed.jsonl is not None else None

    def write(line: str) -> None:
        if lines is not None:
            print(line, file=lines, flush=True)

    bench = LoadTest(parsed, slo, write)
    try:
        most = asyncio.run(bench.find() if parsed.find else bench.ramp())
    finally:
        if lines is not None:
            lines.close()
    print(summary(bench.steps, slo, most))
    if parsed.html is not None:
        title = f"{parsed.target} under load"
        parsed.html.write_text(html_report(title, _facts(parsed), bench.steps, slo, most), encoding="utf-8")
    carried = bool(most) if parsed.find else all(slo.verdict(step) is None for step in bench.steps)
    return 0 if carried else 1


async def is_reachable(url: str) -> bool:
    """Whether a connection can be made to the address, whatever is spoken there."""
    parts = urlsplit(url if "://" in url else f"ws://{url}")
    port = parts.port or (443 if parts.scheme in ("https", "wss") else 80)
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except OSError:  # a timeout too
        return False
    writer.close()
    return True


class LoadTest:
    """Runs steps and keeps their figures; `write` takes lines of JSON."""

    def __init__(self, parsed: argparse.Namespace, slo: Slo, write: Callable[[str], None]) -> None:
        self.steps: list[StepFigures] = []
        self._parsed, self._slo, self._write = parsed, slo, write

    async def ramp(self) -> None:
        """The steps that were asked for."""
        if self._parsed.rate:
            for rate_per_s in self._parsed.rate:
                await self._step(rate_per_s=rate_per_s)
            return
        for streams in self._parsed.streams or (1, 4, 8):
            await self._step(streams=round(streams))

    async def find(self) -> int:
        """The most streams that stay under the slo, tried twice."""
        search = CapacitySearch(first=1, limit=self._parsed.most)
        while (streams := search.next) is not None:
            search.tell(await self._step(streams=streams))
        return search.best

    async def _step(self, *, streams: int = 0, rate_per_s: float = 0.0) -> bool:
        parsed = self._parsed
        load = LoadStep(
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

        def on_sample(sample: UtteranceResult) -> None:
            self._write(to_json({"step": name, **asdict(sample)}))
            progress.count(sample)

        began_s, cpu_s = time.monotonic(), self._server_cpu_s()
        result = await run_step(load, processes_for(load, parsed.processes), on_sample)
        step = figures(name, streams or rate_per_s, result, self._server(began_s, cpu_s))
        verdict = self._slo.verdict(step)
        self._write(to_json({"step": name, "verdict": verdict, **asdict(step)}))
        progress.end(verdict)
        self.steps.append(step)
        return verdict is None

    def _server_cpu_s(self) -> float:
        return 0.0 if self._parsed.pid is None else tree_usage(self._parsed.pid).cpu_s

    def _server(self, began_s: float, cpu_s: float) -> tuple[float, float] | None:
        if self._parsed.pid is None:
            return None
        usage = tree_usage(self._parsed.pid)
        return (usage.cpu_s - cpu_s) / (time.monotonic() - began_s), usage.memory_mb


def _facts(parsed: argparse.Namespace) -> dict[str, str]:
    shares = {"interrupt": parsed.barge_in, "read slowly": parsed.slow, "cut the connection": parsed.abrupt}
    return {
        "server": parsed.url,
        "when": datetime.now().astimezone().isoformat(timespec="seconds"),
        "client": f"{platform.node()}, {len(os.sched_getaffinity(0))} cores",
        "text": f"{parsed.sentences} sentences, {parsed.words_per_s:g} words a second",
        "steps": f"{parsed.seconds:g} s, seed {parsed.seed}",
        "listeners that": ", ".join(f"{what}: {share:.0%}" for what, share in shares.items() if share) or "all listen",
    }


def _numbers(text: str) -> Sequence[float]:
    numbers = [_number(part) for part in text.split(",")]
    if min(numbers) <= 0:
        raise argparse.ArgumentTypeError(f"numbers above 0, with commas between, not {text!r}")
    return numbers


def _share(text: str) -> float:
    share = _number(text)
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"a share is 0 to 1, not {text!r}")
    return share


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
