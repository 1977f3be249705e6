"""vLLM's worker on a CPU; it reports the steps of its start to the process that starts the engine."""

from __future__ import annotations

from ..compat import CPUWorker
from ..start_notes import notes_its_start


@notes_its_start
class CpuTalkerWorker(CPUWorker):
    """Created by vLLM where its `worker_cls` names it."""
