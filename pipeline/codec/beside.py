"""The codec worker as a thread of the process that holds the GPU.

Kernels of two processes take turns on a GPU, milliseconds each; those of two streams of one process run side by side.
"""

from __future__ import annotations

import socket
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import torch

from .answering import answer_jobs
from .options import WorkerOptions
from .worker import load

if TYPE_CHECKING:
    from .gpu_worker import GpuWorker

SWITCH_S = 0.0005
"""How long the talker's Python may keep the codec's waiting."""


def serve_beside(options: WorkerOptions) -> GpuWorker | None:
    """Load in this thread, then announce it and serve from a thread of its own until the socket closes.

    Returns None when there is nothing to serve; why, the gateway is told.
    """
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(f"\0{options.address}")
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        worker = load(channel, options)
    finally:
        torch.set_default_dtype(usual)
    if worker is None:
        return None

    def run() -> None:
        # The gateway may close in mid-answer, which is an end like any other.
        with suppress(BrokenPipeError, ConnectionResetError), channel:
            answer_jobs(channel, worker, options)

    sys.setswitchinterval(SWITCH_S)
    threading.Thread(target=run, name="codec", daemon=True).start()
    # Beside is on a GPU.
    return cast("GpuWorker", worker)
