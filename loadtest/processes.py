"""Runs one step of a load in as many client processes as it needs, and measures the server meanwhile."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence

from .plan import LoadStep
from .process_tree import tree_cpu_s, tree_usage
from .results import StepFigures, StepResult, UtteranceResult, summarise_step
from .worker import READY, encode_step

STREAMS_PER_PROCESS = 150
"""Virtual users per process: half of what one core can serve in real time."""
_START_DELAY_S = 0.1
"""Time from the moment when every process is ready to the beginning of the step."""
_MAX_LINE_BYTES = 1 << 20


def processes_for(step: LoadStep, wanted: int | None = None) -> int:
    """`wanted`, or the number that the step needs, at most one per core."""
    if wanted is not None:
        return wanted
    streams = step.streams or len(step.arrivals_s())
    return max(1, min(len(os.sched_getaffinity(0)), -(-streams // STREAMS_PER_PROCESS)))


async def measure_step(
    name: str,
    step: LoadStep,
    processes: int,
    on_result: Callable[[UtteranceResult], None] = lambda _: None,
    server_pids: Sequence[int] = (),
    *,
    memory: bool = True,
) -> StepFigures:
    """Runs `step` and summarises it, with the CPU time of the process trees under `server_pids`.

    `memory`: also measure their memory, which stops a large process for a moment. Raises what `run_step` raises.
    """
    began_s, cpu_s = time.monotonic(), sum(map(tree_cpu_s, server_pids))
    result = await run_step(step, processes, on_result)
    cores = memory_mb = None
    if server_pids:
        cores = (sum(map(tree_cpu_s, server_pids)) - cpu_s) / (time.monotonic() - began_s)
        memory_mb = sum(tree_usage(pid).memory_mb for pid in server_pids) if memory else None
    return summarise_step(name, step.streams or step.rate_per_s, result, cores, memory_mb)


async def run_step(step: LoadStep, processes: int, on_result: Callable[[UtteranceResult], None]) -> StepResult:
    """Runs `step`; `on_result` gets each result as it arrives. Raises RuntimeError when a process fails.

    Cancelling it kills the processes.
    """
    total = StepResult()
    ready = asyncio.Barrier(processes)
    begin_s = 0.0

    async def run_part(part: int) -> None:
        process = await _start()
        try:
            await begin(process, dataclasses.replace(step, part=part, parts=processes))
            await read_results(process)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def begin(process: Process, part: LoadStep) -> None:
        """Begins once every process is ready, because interpreters take seconds to start."""
        nonlocal begin_s
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(encode_step(part).encode() + b"\n")
        if await process.stdout.readline() != READY:
            raise RuntimeError("a client process did not start; its error is above")
        if await ready.wait() == 0:
            begin_s = time.monotonic() + _START_DELAY_S
        await ready.wait()
        process.stdin.write(f"{begin_s}\n".encode())

    async def read_results(process: Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            fields = json.loads(line)
            if "lags_ms" in fields:
                total.lags_ms += fields["lags_ms"]
                total.client_cpu_s += fields["cpu_s"]
            else:
                result = UtteranceResult.from_fields(fields)
                total.results.append(result)
                total.seconds = time.monotonic() - begin_s
                on_result(result)
        if await process.wait():
            raise RuntimeError("a client process failed; its error is above")

    async with asyncio.TaskGroup() as parts:
        for part in range(processes):
            parts.create_task(run_part(part))
    return total


async def _start() -> Process:
    command = (sys.executable, "-m", f"{__package__}.worker")
    return await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, limit=_MAX_LINE_BYTES)
