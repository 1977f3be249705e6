"""What the device does while a step is made, by kernel: vLLM's worker is profiled, with generations under way.

Both functions are sent to the engine's process and run there.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

LIBRARY = re.compile(r"nvjet|cublas|cutlass|gemm", re.IGNORECASE)
"""Names of the library's products, a dozen shapes of them."""
SHOWN = 10
"""Kernels that are named; the others' time is one figure."""
_running: list[Any] = []


def begin_profile(worker: Any) -> None:  # noqa: ARG001 - vLLM hands itself over
    """Record every kernel from now on."""
    from torch.profiler import ProfilerActivity, profile

    recording = profile(activities=[ProfilerActivity.CUDA])
    recording.start()
    _running.append(recording)


def end_profile(worker: Any) -> dict[str, float]:  # noqa: ARG001 - vLLM hands itself over
    """Stop, and give `shares_of` what ran since `begin_profile`."""
    import torch

    torch.cuda.synchronize()
    recording = _running.pop()
    recording.stop()
    ran = [event for event in recording.events() if event.device_type.name == "CUDA"]
    return shares_of((event.time_range.start, event.time_range.end, event.name) for event in ran)


def shares_of(spans: Iterable[tuple[float, float, str]]) -> dict[str, float]:
    """From (begin, end, name) of kernels and copies: the share of the time with anything under way, "busy", and the
    share that each takes of all that ran, the longest first. Kernels may overlap. Empty where nothing ran.
    """
    took: defaultdict[str, float] = defaultdict(float)
    busy = end = 0.0
    ordered = sorted(spans)
    for begin, until, name in ordered:
        took["the library's products" if LIBRARY.search(name) else _short(name)] += until - begin
        busy += max(0.0, until - max(begin, end))
        end = max(end, until)
    if not took:
        return {}
    all_took = sum(took.values())
    longest = sorted(took.items(), key=lambda each: -each[1])
    shares = {name: round(each / all_took, 3) for name, each in longest[:SHOWN]}
    rest = sum(each for _, each in longest[SHOWN:])
    return {"busy": round(busy / (end - ordered[0][0]), 3), **shares, "others": round(rest / all_took, 3)}


def _short(name: str) -> str:
    """Without arguments and namespaces, of which torch's kernels have lines."""
    return name.removeprefix("void ").partition("<")[0].partition("(")[0].rpartition("::")[2] or name[:40]
