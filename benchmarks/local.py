"""`voxgate bench local`: what this machine can do, measured through a real socket against a gateway of its own."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import psutil
from voxgate.client import AudioFormat, SpeechError, Utterance, connect
from voxgate.loadtest.process_tree import tree_usage
from voxgate.loadtest.virtual_user import SENTENCES, Playback

from .fleet import GatewayStartError, one_gateway

WORDS_PER_S = 25.0
"""Text arrives about as fast as a language model writes it."""
BUFFERS_MS = (0, 80, 200)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--streams", default="1,4,8,12,16", help="numbers of streams to try (default: %(default)s)")
    parser.add_argument("--first", type=int, default=20, metavar="N", help="utterances for time to first audio")
    parser.add_argument("--codec", choices=("pcm", "opus"), default="opus", help="what the streams ask for")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    parser.add_argument("--serve", default="", metavar="FLAGS", help="flags for the gateway, such as '--slots 8'")


def run(parsed: argparse.Namespace) -> int:
    try:
        report = asyncio.run(_measure(parsed))
    except GatewayStartError as failure:
        print(f"voxgate bench local: {failure}", file=sys.stderr)
        return 1
    _show(report)
    if parsed.json is not None:
        parsed.json.write_text(json.dumps(asdict(report), indent=2) + "\n", encoding="utf-8")
    return 0


@dataclass(frozen=True, slots=True)
class StreamsRow:
    """`refused`: streams beyond what the gateway says it carries; the other figures are of those it let in.

    `underruns`: streams with any underrun, by the player's start buffer in milliseconds.
    """

    streams: int
    refused: int
    first_audio_ms_p50: float
    first_audio_ms_max: float
    gap_ms_max: float
    underruns: dict[int, int]
    cpu_cores: float


@dataclass(frozen=True, slots=True)
class LocalReport:
    machine: str
    day: str
    ready_s: float
    first_audio_ms: list[float]
    times_real_time: float
    rows: list[StreamsRow]
    memory_mb: float
    processes_left: int


async def _measure(parsed: argparse.Namespace) -> LocalReport:
    began = time.monotonic()
    async with one_gateway(parsed.serve.split()) as gateway:
        pid, url = gateway.pid, gateway.url
        ready_s = time.monotonic() - began
        _say(f"ready after {ready_s:.1f} s")
        await _first_audio(url, parsed.codec)  # the first one of all warms caches up
        first = [await _first_audio(url, parsed.codec) for _ in range(parsed.first)]
        _say(f"time to first audio: median {statistics.median(first):.0f} ms")
        speed = statistics.median([await _speed(url) for _ in range(3)])
        _say(f"one stream: {speed:.1f} times faster than real time")
        rows = []
        memory_mb = tree_usage(pid).memory_mb
        for streams in (int(number) for number in parsed.streams.split(",")):
            rows.append(await _streams(url, pid, streams, parsed.codec))
            _say(f"{streams} streams: {rows[-1].underruns[200]} with underruns at a buffer of 200 ms")
            memory_mb = max(memory_mb, tree_usage(pid).memory_mb)
        family = psutil.Process(pid).children(recursive=True)
    _, alive = psutil.wait_procs(family, timeout=3)
    left = sum(_runs(process) for process in alive)
    return LocalReport(_machine(), date.today().isoformat(), ready_s, first, speed, rows, memory_mb, left)


async def _first_audio(url: str, codec: str) -> float:
    """Milliseconds from sending the first text to the first message with audio."""
    async with connect(url) as session, session.utterance(format=_format(codec)) as utterance:
        began = time.monotonic()
        await utterance.send(SENTENCES[0])
        await utterance.end()
        async for audio in utterance.audio():
            if audio.samples:
                return 1000 * (time.monotonic() - began)
    raise SystemExit("an utterance came without audio")


async def _speed(url: str) -> float:
    """Seconds of audio made in a second, for a single utterance as fast as it goes."""
    playback = Playback(24_000)
    async with connect(url) as session, session.utterance(pacing="none") as utterance:
        began = time.monotonic()
        await utterance.send("".join(SENTENCES))
        await utterance.end()
        async for audio in utterance.audio():
            playback.arrive(time.monotonic(), audio.pts, audio.samples)
        return playback.audio_s / (time.monotonic() - began)


async def _streams(url: str, pid: int, count: int, codec: str) -> StreamsRow:
    """`count` listeners at once, each started at its own moment of two seconds."""
    before, began = tree_usage(pid).cpu_s, time.monotonic()
    asked = await asyncio.gather(*(_listen(url, codec, 2.0 * number / count, number) for number in range(count)))
    results = [result for result in asked if result is not None]
    seconds = time.monotonic() - began
    first = [ms for ms, _ in results]
    return StreamsRow(
        streams=count,
        refused=count - len(results),
        first_audio_ms_p50=statistics.median(first),
        first_audio_ms_max=max(first),
        gap_ms_max=max(playback.longest_gap_ms for _, playback in results),
        underruns={ms: sum(playback.underruns(ms) > 0 for _, playback in results) for ms in BUFFERS_MS},
        cpu_cores=(tree_usage(pid).cpu_s - before) / seconds,
    )


async def _listen(url: str, codec: str, delay_s: float, number: int) -> tuple[float, Playback] | None:
    """Milliseconds to the first audio, and when what arrived; None when it was not let in."""
    await asyncio.sleep(delay_s)
    playback = Playback(24_000)
    async with connect(url) as session, session.utterance(format=_format(codec)) as utterance:
        began = time.monotonic()
        feeding = asyncio.create_task(_type(utterance, number))
        first_ms = 0.0
        try:
            async for audio in utterance.audio():
                now = time.monotonic()
                first_ms = first_ms or 1000 * (now - began)
                playback.arrive(now, audio.pts, audio.samples)
        except SpeechError as error:
            feeding.cancel()
            # Its next word would have failed with the same error.
            await asyncio.gather(feeding, return_exceptions=True)
            if error.code != "at_capacity":
                raise
            return None
        await feeding
    return first_ms, playback


async def _type(utterance: Utterance, number: int) -> None:
    text = "".join(SENTENCES[(number + turn) % len(SENTENCES)] for turn in range(3))
    for word in text.split(" "):
        await utterance.send(word + " ")
        await asyncio.sleep(1 / WORDS_PER_S)
    await utterance.end()


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _format(codec: str) -> AudioFormat:
    return AudioFormat(codec="opus" if codec == "opus" else "pcm")


def _machine() -> str:
    model = next(
        (line.split(":", 1)[1].strip() for line in _cpu_lines() if line.startswith("model name")), platform.processor()
    )
    return f"{model}, {len(os.sched_getaffinity(0))} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB"


def _cpu_lines() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def _show(report: LocalReport) -> None:
    first = sorted(report.first_audio_ms)
    print(f"\n{report.machine}, {report.day}\n")
    print(f"ready after                 {report.ready_s:8.1f} s")
    print(f"first audio, one stream     {statistics.median(first):8.0f} ms median, {first[-1]:.0f} ms at most")
    print(f"one stream, unpaced         {report.times_real_time:8.1f} x real time")
    print(f"memory of all processes     {report.memory_mb:8.0f} MB")
    print(f"processes left afterwards   {report.processes_left:8d}\n")
    print("streams  refused  first audio p50/max  longest gap  with underruns at buffer 0/80/200 ms  CPU cores")
    for row in report.rows:
        shown = "/".join(str(row.underruns[ms]) for ms in BUFFERS_MS)
        first_audio = f"{row.first_audio_ms_p50:.0f}/{row.first_audio_ms_max:.0f} ms"
        counts = f"{row.streams:7d}  {row.refused:7d}  {first_audio:>19}"
        print(f"{counts}  {row.gap_ms_max:8.0f} ms  {shown:>35}  {row.cpu_cores:9.2f}")
