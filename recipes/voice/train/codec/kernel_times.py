"""Where an update spends its time, by kernel, for the log of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

_UPDATES = 3
_ROWS = 60


def write_kernel_times(path: Path, update: Callable[[], object], device: torch.device) -> None:
    """Write a table of the kernels of three updates, those that need most time first."""
    cuda = device.type == "cuda"
    activity, order = (
        (ProfilerActivity.CUDA, "self_cuda_time_total") if cuda else (ProfilerActivity.CPU, "self_cpu_time_total")
    )
    with profile(activities=[activity]) as profiled:
        for _ in range(_UPDATES):
            update()
        if cuda:
            torch.cuda.synchronize()
    kernels = profiled.key_averages()
    table = kernels.table(sort_by=order, row_limit=_ROWS, max_name_column_width=90)
    path.write_text(f"{sum(event.count for event in kernels)} calls in {_UPDATES} updates\n{table}\n", encoding="utf-8")
