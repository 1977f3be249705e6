"""Speed of synthesis on one core. `python -m eval.speed CHECKPOINT VOICE` prints a line of JSON."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

_SENTENCES = 8


@dataclass(frozen=True, slots=True)
class SynthesisSpeed:
    """Elapsed time and CPU time per second of audio, for one utterance at a time on one core."""

    real_time_factor: float
    cpu_s: float
    seconds: float


def measure(checkpoint: Path, voice: str) -> SynthesisSpeed:
    """Measure in a subprocess, which binds itself and its children to one core."""
    command = [sys.executable, "-m", "eval.speed", str(checkpoint), voice]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return SynthesisSpeed(**json.loads(answer.stdout.splitlines()[-1]))


async def _measure(checkpoint: Path, voice: str) -> SynthesisSpeed:
    from voxgate.codecs.pcm import SAMPLE_RATE_HZ
    from voxgate.pipeline.interface import SamplingOptions

    from . import plan as texts
    from .session import open_speaker

    lines = texts.load(texts.SENTENCES)[:: 212 // _SENTENCES][: _SENTENCES + 1]
    async with open_speaker(checkpoint, concurrent=1) as speaker:
        await speaker.speak(voice, lines[0].written, 0, SamplingOptions())
        began_s, start_cpu_s, samples = time.monotonic(), _cpu_s(), 0
        for line in lines[1:]:
            samples += len((await speaker.speak(voice, line.written, 0, SamplingOptions())).pcm)
        seconds = samples / SAMPLE_RATE_HZ
        return SynthesisSpeed((time.monotonic() - began_s) / seconds, (_cpu_s() - start_cpu_s) / seconds, seconds)


def _cpu_s() -> float:
    """CPU seconds of this process and its children so far."""
    own = psutil.Process()
    times = [process.cpu_times() for process in (own, *own.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))


if __name__ == "__main__":
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(json.dumps(asdict(asyncio.run(_measure(Path(sys.argv[1]), sys.argv[2])))))
