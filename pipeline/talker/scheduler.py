"""vLLM schedulers that leave a session out of a step while it lacks text or frame credit.

Held sessions keep their place and their cache; they are only not looked at for one `schedule()` call. When nothing but
held sessions remain, the engine sleeps until the gateway wakes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from .frames import pack_release, read_release_mark
from .tables import Field
from .wiring import Wiring

if TYPE_CHECKING:
    from vllm.v1.core.sched.scheduler import Scheduler as _Mixed
    from vllm.v1.request import Request
else:
    _Mixed = object


class _Holding(_Mixed):
    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(vllm_config, *args, **kwargs)
        # vLLM calls this in the engine process, which only then can map the gateway's tables.
        wiring = Wiring.of(vllm_config)
        self._control = wiring.attach().control
        self._releases = wiring.connect()

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        ready, held = self._split()
        if not held:
            return super().schedule(*args, **kwargs)
        self.running = ready
        try:
            return super().schedule(*args, **kwargs)
        finally:
            self.running = self.running + held

    def has_requests(self) -> bool:
        if not super().has_requests():
            return False
        if self.has_finished_requests() or len(self.running) < self.get_num_unfinished_requests():
            return True
        return bool(self._split()[0])

    def finish_requests(self, request_ids: Any, finished_status: Any) -> Any:
        """Aborts come here between steps; release marks among them are answered (see `release_mark`)."""
        result = super().finish_requests(request_ids, finished_status)
        names = [request_ids] if isinstance(request_ids, str) else request_ids or ()
        for name in names:
            if (owner := read_release_mark(name)) is not None:
                self._releases.send(pack_release(*owner))
        return result

    def _split(self) -> tuple[list[Request], list[Request]]:
        """Running requests that may take their next step, and those that may not."""
        rows = self._control.tolist()
        ready: list[Request] = []
        held: list[Request] = []
        for request in self.running:
            row = rows[request.prompt_token_ids[0]]
            (ready if _may_step(request.num_computed_tokens, row) else held).append(request)
        return ready, held


def _may_step(computed: int, row: list[int]) -> bool:
    """Whether the step that makes frame `computed - prefix` has its text token and its credit.

    Steps in flight are counted in `computed` already, so this also holds under asynchronous scheduling.
    """
    frame = computed - row[Field.PREFIX_LEN]
    if frame < 0:
        return True
    has_text = frame + row[Field.TEXT_LEAD] < row[Field.TEXT_LEN] or bool(row[Field.CLOSED])
    return frame < row[Field.CREDIT] and has_text


class HoldingScheduler(_Holding, Scheduler):
    """For engines that schedule each step after the one before it (CPU)."""


class HoldingAsyncScheduler(_Holding, AsyncScheduler):
    """For engines that schedule a step while the one before it runs (CUDA)."""
