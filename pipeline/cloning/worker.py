"""Makes one voice and ends: `python -m voxgate.pipeline.cloning.worker PARENT_PID`, job and reply by its pipes.

Untrusted files are parsed in this process, at a low priority and without access to the gateway's memory, sockets
or voices. It can be killed at any moment, and it ends with the gateway process that started it.
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
from .service import CloningJob, error_reply, success_reply
from .store import serialize_voice

NICENESS = 5
"""A third of the share of a normal process, so that speech goes first.

At the lowest priority a voice would not be finished in time on a machine that other programs keep busy.
"""


def main() -> None:
    """Read a job from standard input, and write the reply to standard output."""
    kill_with_parent(int(sys.argv[1]))
    # Ctrl-C reaches the whole process group, but the gateway decides whether this process continues.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    # Log records go to the gateway's standard error, but the decoders' output about an untrusted file does not.
    logging.basicConfig(stream=os.fdopen(os.dup(2), "w"))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    job = CloningJob.from_bytes(sys.stdin.buffer.read())
    sys.stdout.buffer.write(run_job(job))


def run_job(job: CloningJob) -> bytes:
    """Make the voice; returns the reply. Raises nothing: errors become replies."""
    import torch

    torch.set_num_threads(1)
    try:
        limits = RecordingLimits(job.max_bytes, job.max_duration_s)
        stored = voice_from_recording(Path(job.folder), job.checkpoint, job.draft, job.recording, limits)
    except VoxgateError as error:
        return error_reply(error)
    except Exception as error:
        logging.exception("making a voice failed")
        return error_reply(CloningFailed(f"making the voice failed: {type(error).__name__}"))
    return success_reply(serialize_voice(stored))


if __name__ == "__main__":
    main()
