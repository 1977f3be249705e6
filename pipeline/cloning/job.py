"""Does a cloning job, in the process of a worker."""

from __future__ import annotations

import logging
from pathlib import Path

from ..errors import CloningFailed, VoxgateError
from .creation import voice_from_recording
from .recording import RecordingLimits
from .service import CloningJob, error_reply, success_reply
from .store import serialize_voice


def run_job(job: CloningJob) -> bytes:
    """Make the voice; returns the reply. Raises nothing: errors become replies."""
    import torch

    torch.set_num_threads(1)
    try:
        limits = RecordingLimits(job.max_bytes, job.max_duration_s)
        stored = voice_from_recording(Path(job.folder), job.checkpoint, job.draft, bytes(job.recording), limits)
    except VoxgateError as error:
        return error_reply(error)
    except Exception as error:
        logging.exception("making a voice failed")
        return error_reply(CloningFailed(f"making the voice failed: {type(error).__name__}"))
    return success_reply(serialize_voice(stored))
