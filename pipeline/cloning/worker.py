"""Makes one voice and ends: `python -m voxgate.pipeline.cloning.worker PARENT_PID`, job and reply by its pipes.

Untrusted files are parsed in this process, at a low priority and confined to the job's checkpoint: without other files,
the network, or access to other processes. It can be killed at any moment, and it ends with the gateway process that
started it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path

from ..ipc.process_death import ignore_group_signals, kill_with_parent
from .confinement import confine

NICENESS = 5
"""A third of the share of a normal process, so that speech goes first.

At the lowest priority a voice would not be finished in time on a machine that other programs keep busy.
"""


def main() -> None:
    """Read a job from standard input, and write the reply to standard output."""
    kill_with_parent(int(sys.argv[1]))
    ignore_group_signals()
    os.nice(NICENESS)
    # Log records go to the gateway's standard error, but the decoders' output about an untrusted file does not.
    logging.basicConfig(stream=os.fdopen(os.dup(2), "w"))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    # Where the wheel brings no libsndfile, finding it starts another program.
    import soundfile  # noqa: F401

    message = sys.stdin.buffer.read()
    confine(Path(json.loads(message.partition(b"\n")[0])["folder"]))
    # Only now: numpy and torch start threads, which would not be confined.
    from .job import run_job
    from .service import CloningJob

    sys.stdout.buffer.write(run_job(CloningJob.from_bytes(message)))


if __name__ == "__main__":
    main()
