"""Makes one voice in a process of its own, and ends: `python -m voxgate.pipeline.cloning.worker`, by its pipes.

Strangers' files are parsed here, with the least priority and none of the gateway's memory, sockets or voices in reach.
The process can be stopped at any moment, and never outlives the gateway.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path

from ..errors import CloningFailed, VoxgateError
from ..ipc.process_death import kill_with_parent
from .creation import voice_from_recording
from .recording import RecordingLimits
from .service import CloningJob, answer, error_answer
from .store import to_bytes

LEAST_PRIORITY = 19


def main() -> None:
    kill_with_parent()
    # Ctrl-C reaches the whole process group; whether we go on is the gateway's to decide.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(LEAST_PRIORITY)
    # What decoders print about a stranger's file is not for the gateway's log; what we say ourselves is.
    logging.basicConfig(stream=os.fdopen(os.dup(2), "w"))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    job = CloningJob.from_bytes(sys.stdin.buffer.read())
    sys.stdout.buffer.write(make(job))


def make(job: CloningJob) -> bytes:
    """The answer to a job; never raises."""
    import torch

    torch.set_num_threads(1)
    try:
        limits = RecordingLimits(job.max_bytes, job.max_duration_s)
        stored = voice_from_recording(Path(job.folder), job.checkpoint, job.draft, job.recording, limits)
    except VoxgateError as error:
        return error_answer(error)
    except Exception as error:
        logging.exception("no voice was made")
        return error_answer(CloningFailed(f"no voice was made: {type(error).__name__}"))
    return answer(to_bytes(stored))


if __name__ == "__main__":
    main()
