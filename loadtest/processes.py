"""Runs one step of a load in as many processes as it takes."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable

from .plan import LoadStep
from .results import StepResult, UtteranceResult
from .worker import READY, encode

STREAMS_PER_PROCESS = 150
"""A core keeps time for about twice as many real-time listeners."""
_LEAD_S = 0.1
"""From when every process is ready to the load's beginning."""
_LINE_BYTES = 1 << 20


def processes_for(load: LoadStep, wanted: int | None = None) -> int:
    """`wanted`, or what the load needs, at most one a core."""
    listeners = load.streams or len(load.arrivals_s())
    return wanted or max(1, min(len(os.sched_getaffinity(0)), -(-listeners // STREAMS_PER_PROCESS)))


async def run_step(load: LoadStep, processes: int, on_sample: Callable[[UtteranceResult], None]) -> StepResult:
    """Run `load`; `on_sample` sees each sample as it comes. Raises RuntimeError when a process fails."""
    result = StepResult()
    ready = asyncio.Barrier(processes)
    begin_s = 0.0

    async def run_part(part: int) -> None:
        process = await _start()
        try:
            await _prepare(process, dataclasses.replace(load, part=part, parts=processes))
            await _talk(process)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def _prepare(process: Process, part: LoadStep) -> None:
        """Interpreters take seconds to start; all begin when the last one is there."""
        nonlocal begin_s
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(encode(part).encode() + b"\n")
        if await process.stdout.readline() != READY:
            raise RuntimeError("a process of listeners did not start; its reason is above")
        if await ready.wait() == 0:
            begin_s = time.monotonic() + _LEAD_S
        await ready.wait()
        process.stdin.write(f"{begin_s}\n".encode())

    async def _talk(process: Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            fields = json.loads(line)
            if "lags_ms" in fields:
                result.lags_ms += fields["lags_ms"]
                result.client_cpu_s += fields["cpu_s"]
            else:
                sample = UtteranceResult.from_fields(fields)
                result.samples.append(sample)
                result.seconds = time.monotonic() - begin_s
                on_sample(sample)
        if await process.wait():
            raise RuntimeError("a process of listeners failed; its reason is above")

    async with asyncio.TaskGroup() as parts:
        for part in range(processes):
            parts.create_task(run_part(part))
    return result


async def _start() -> Process:
    module = f"{__package__}.worker"
    command = (sys.executable, "-m", module)
    return await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, limit=_LINE_BYTES)
