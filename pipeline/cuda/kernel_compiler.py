"""Compiles kernels before their first launch, in several processes, into the cache that their launches read.

Triton compiles a kernel when it is launched, one after the other, for a second each. Here the code that launches the
kernels runs over tensors without memory (PyTorch's meta device); its launches are noted instead of executed, and
compiled by as many processes as there are processors. No GPU is used.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime.cache import get_cache_manager, triton_key

from ..ipc.process_death import kill_with_parent

MAX_PROCESSES = 32
"""Each takes some 200 MB of memory."""
NICENESS = 10
"""Of the compiling processes: the engine that starts meanwhile goes first."""

_MARK = "complete"

Job = Callable[[], object]
"""Compiles one kernel, or finds it in the cache."""


class AbsentDevice:
    """In place of Triton's driver of a device: names the architecture to compile for."""

    def __init__(self, capability: tuple[int, int]) -> None:
        major, minor = capability
        self._target = GPUTarget("cuda", 10 * major + minor, 32)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _device: int) -> int:
        return 0


@contextmanager
def noted_launches(capability: tuple[int, int]) -> Iterator[dict[str, Job]]:
    """Launches of Triton kernels in this block do nothing; fills the result with the compilation of each.

    Keys are unique by kernel and specialisation: the types of its arguments, alignment, compile-time constants, options
    and `capability`. The process cannot launch kernels afterwards.
    """
    triton.runtime.driver.set_active(AbsentDevice(capability))
    noted: dict[str, Job] = {}

    def note(*, key: str, fn: Any, compile: Mapping[str, Any], **_: object) -> bool:
        noted.setdefault(
            f"{fn.module}.{fn.name} {key}", partial(fn.jit_function.preload, compile["specialization_data"])
        )
        return True  # neither compiled nor launched

    knobs.runtime.jit_cache_hook = note
    try:
        yield noted
    finally:
        knobs.runtime.jit_cache_hook = None


@dataclass(frozen=True, slots=True)
class Compiled:
    """What `compile_all` did: `kernels` that it was given, those of them that were `new` to the cache or `failed`."""

    kernels: int
    new: int
    failed: int
    seconds: float
    cpu_seconds: float

    def __str__(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        return (
            f"{self.new} of {self.kernels} GPU kernels compiled ahead in {self.seconds:.1f} s "
            f"({self.cpu_seconds:.0f} s of processor time){failed}"
        )


def compile_all(jobs: Sequence[Job], processes: int | None = None) -> Compiled:
    """Runs every job once, in several processes; a job that fails is reported on stderr.

    The processes are forked from this one, so it must not have used a GPU. By default one for each processor.
    """
    triton_key()  # takes most of a second, and is kept: not in every process
    began_s, cpu_s, parent = time.monotonic(), _children_cpu_s(), os.getpid()
    context = multiprocessing.get_context("fork")
    begun, done, new = (context.Value("i", 0) for _ in range(3))

    def add(counter: Any) -> int:
        with counter.get_lock():
            counter.value += 1
            return int(counter.value)

    def work() -> None:
        kill_with_parent(parent)
        os.nice(NICENESS)
        knobs.compilation.listener = lambda *, cache_hit, **_: None if cache_hit else add(new)
        while (number := add(begun)) <= len(jobs):
            try:
                jobs[number - 1]()
                add(done)
            except Exception as error:  # the engine compiles the kernel again, and raises it there
                print(f"kernel not compiled ahead: {error!r}", file=sys.stderr, flush=True)

    count = min(processes or len(os.sched_getaffinity(0)), MAX_PROCESSES, len(jobs))
    before = -1
    # Again when the compiler has crashed in all of them; not when they end before they begin a job.
    while before < begun.value < len(jobs):
        before = begun.value
        workers = [context.Process(target=work, daemon=True) for _ in range(count)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    seconds = time.monotonic() - began_s
    return Compiled(len(jobs), new.value, len(jobs) - done.value, seconds, _children_cpu_s() - cpu_s)


class CompilationLog:
    """Counts the kernels that this process takes from Triton's cache, and those that it has to compile."""

    def __init__(self) -> None:
        """Begins to count."""
        self._cached = 0
        self._compiled: list[tuple[str, float]] = []
        knobs.compilation.listener = self._on_kernel

    def _on_kernel(self, *, src: Any, times: Any, cache_hit: bool, **_: object) -> None:
        if cache_hit:
            self._cached += 1
        else:
            self._compiled.append((src.name, times.total / 1e6))

    def __str__(self) -> str:
        names = ", ".join(name if count == 1 else f"{count} {name}" for name, count in self._names().items())
        seconds = sum(seconds for _, seconds in self._compiled)
        line = f"Triton kernels: {self._cached} were in the cache, {len(self._compiled)} compiled in {seconds:.1f} s"
        return f"{line}: {names}" if names else line

    def _names(self) -> Counter[str]:
        return Counter(name for name, _ in self._compiled)


def _children_cpu_s() -> float:
    times = os.times()
    return times.children_user + times.children_system


def is_complete(digest: str) -> bool:
    """Whether `mark_complete` was called with this hash, and Triton's cache has not been emptied since."""
    return get_cache_manager(digest).get_file(_MARK) is not None


def mark_complete(digest: str) -> None:
    """Note in Triton's cache that all kernels named by a hash are in it."""
    get_cache_manager(digest).put("", _MARK, binary=False)
