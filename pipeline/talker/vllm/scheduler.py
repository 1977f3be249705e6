"""vLLM schedulers that leave a generation out of a step while it lacks text or frame credit.

Held generations keep their place and their cache; they are only not looked at for one `schedule()` call. When nothing
but held ones remain, the engine sleeps until the gateway wakes it. When more could step than a step has time for, those
go first whose listeners are closest to hearing nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from voxgate.codecs.pcm import FRAME_MS

from ...ipc.records import HEARTBEAT, HEARTBEAT_MARKER, pack_prefill, pack_release, pack_step, parse_release_marker
from ...ipc.slot_tables import Field
from ...step_times import StepTimer, StepTimes
from .config import EngineConfig
from .step_timing import MIN_SAMPLES, StepShape, order_wait_s, step_shape

if TYPE_CHECKING:
    from vllm.v1.core.sched.scheduler import Scheduler as _SchedulerBase
    from vllm.v1.request import Request
else:
    _SchedulerBase = object


_BUDGET_S = FRAME_MS / 1000
"""A step may take as long as the sound it makes."""
_BUDGET_LOOK_S = 1.0


class CreditScheduling(_SchedulerBase):
    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(vllm_config, *args, **kwargs)
        # vLLM calls this in the engine process, which only then can map the gateway's tables.
        wiring = EngineConfig.of(vllm_config)
        self._control = wiring.attach_tables().control
        self._reports = wiring.connect_reports()
        self._timer: StepTimer[StepShape] = StepTimer(MIN_SAMPLES)
        self._times = StepTimes()
        self._largest, self._looked_s = wiring.shape.slots, 0.0
        self._slots = wiring.shape.slots
        self._prefill_rows: dict[str, int] = {}
        """The row of each request that reads a prompt for later, until its heir's first step is over."""
        self._handed_over: set[str] = set()
        """Those that have an heir."""
        self._ordered = self._over = 0
        """Steps so far."""
        self._freed: deque[tuple[int, bytes]] = deque()
        """What is reported when so many steps are over."""

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        now_s = time.monotonic()
        ready, held = self._split()
        if len(ready) > (largest := self._largest_batch(now_s)):
            ready, late = ready[:largest], ready[largest:]
            held += late
        if held:
            self.running = ready
        try:
            order = super().schedule(*args, **kwargs)
        finally:
            if held:
                self.running = self.running + held
        self._timer.ordered(order, now_s, self._shape(order))
        self._ordered += 1
        if self._handed_over:
            order.first_frames = self._first_frames(order.num_scheduled_tokens)
        return order

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """A step's outcome: its time is reported when all it did was to make frames."""
        now_s = time.monotonic()
        seconds = self._timer.finished(scheduler_output, now_s)
        # Those that end with this step are forgotten by it.
        requests = self.requests.copy()
        result = super().update_from_output(scheduler_output, model_runner_output)
        keep_finished_outputs(result, requests)
        if self._prefill_rows:
            self._tell_of_prompts(scheduler_output.num_scheduled_tokens, requests)
        self._over += 1
        self._tell_of_freed()
        tokens: Sequence[int] = scheduler_output.num_scheduled_tokens.values()
        if tokens and max(tokens) == 1:
            self._times.record(len(tokens), seconds, now_s)
            self._reports.send(pack_step(len(tokens), seconds))
        return result

    def _shape(self, order: Any) -> StepShape | None:  # noqa: ARG002 - of engines that order ahead only
        """The shape of a step whose end is waited for."""
        return None

    def has_requests(self) -> bool:
        if self._has_work():
            return True
        self._timer.idle()
        return False

    def _has_work(self) -> bool:
        if not super().has_requests():
            return False
        if self.has_finished_requests() or len(self.running) < self.get_num_unfinished_requests():
            return True
        return bool(_may_step(*self._state()).any())

    def finish_requests(self, request_ids: Any, finished_status: Any) -> Any:
        """Aborts come here between steps; marks among them are answered (see `release_marker`, `HEARTBEAT_MARKER`)."""
        result = super().finish_requests(request_ids, finished_status)
        names = [request_ids] if isinstance(request_ids, str) else request_ids or ()
        for name in names:
            if name in self._prefill_rows:
                self._free_prompt(name)
            if name == HEARTBEAT_MARKER:
                self._reports.send(HEARTBEAT)
            elif (owner := parse_release_marker(name)) is not None:
                self._free(pack_release(*owner))
        return result

    def _free(self, word: bytes) -> None:
        """Report that a row is free, once no step is under way that may still read it for who had it."""
        self._freed.append((self._ordered, word))
        self._tell_of_freed()

    def _tell_of_freed(self) -> None:
        while self._freed and self._freed[0][0] <= self._over:
            self._reports.send(self._freed.popleft()[1])

    def _largest_batch(self, now_s: float) -> int:
        """The most rows that a step has time for."""
        if now_s - self._looked_s >= _BUDGET_LOOK_S:
            self._looked_s, curve = now_s, self._times.curve(now_s)
            self._largest = max(1, curve.largest_batch_within(_BUDGET_S, self._slots))
        return self._largest

    def _split(self) -> tuple[list[Request], list[Request]]:
        """Running requests that may take their next step, closest to running dry first, and those that may not."""
        running = self.running
        computed, rows = self._state()
        may = _may_step(computed, rows)
        order = np.flatnonzero(may)
        if len(order) > self._largest:
            order = order[np.argsort(_lead(computed, rows)[order], kind="stable")]
        if len(order) == len(running):
            # The usual case: nobody is held.
            return [running[at] for at in order.tolist()], []
        return [running[at] for at in order.tolist()], [running[at] for at in np.flatnonzero(~may).tolist()]

    def _state(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Positions computed of each running request, [n], and its slot's row of the table, [n, len(Field)].

        Looked at several times a step, for hundreds of them: whole arrays, not one by one.
        """
        running = self.running
        slots = np.array([request.prompt_token_ids[0] for request in running], np.int64)
        computed = np.array([request.num_computed_tokens for request in running], np.int64)
        if self._prefill_rows:
            heirs = self._control[slots, Field.SUCCESSOR] - 1
            for at in np.flatnonzero(heirs >= 0):
                self._hand_over(running[at], int(heirs[at]))
                slots[at] = heirs[at]
        return computed, self._control[slots]

    # Prompts that are read before they are needed (`warm.py`)

    def add_request(self, request: Request) -> None:
        if (row := request.prompt_token_ids[0]) >= self._slots:
            self._prefill_rows[request.request_id] = row
        super().add_request(request)

    def _hand_over(self, request: Request, heir: int) -> None:
        """From here on a prompt's request is its heir's, by his slot, also where it has to be computed once more."""
        for tokens in (request.prompt_token_ids, request._all_token_ids, request._output_token_ids):
            tokens[:] = [heir] * len(tokens)
        self._handed_over.add(request.request_id)

    def _tell_of_prompts(self, stepped: Mapping[str, int], requests: Mapping[str, Request]) -> None:
        """Report rows whose prompt was read by this step, and those whose heir's first step it was."""
        for name in [name for name in self._prefill_rows if name in stepped]:
            if name in self._handed_over:
                self._free_prompt(name)
            elif requests[name].num_output_tokens:
                self._reports.send(pack_prefill(self._prefill_rows[name]))

    def _first_frames(self, stepping: Mapping[str, int]) -> list[tuple[int, int]]:
        """Of those whose prompt was read before, and who make their first frame in this step: slots of the talker's and
        of the codec's, where they have one."""
        found: list[tuple[int, int]] = []
        for name in self._handed_over:
            if name in stepping:
                slot = int(self._control[self._prefill_rows[name], Field.SUCCESSOR]) - 1
                begin, codec = (int(self._control[slot, field]) for field in (Field.PREFIX_LEN, Field.CODEC_SLOT))
                # Counted in already is the step that was just ordered.
                if codec and self.requests[name].num_computed_tokens == begin + 1:
                    found.append((slot, codec - 1))
        return found

    def _free_prompt(self, name: str) -> None:
        self._handed_over.discard(name)
        self._free(pack_prefill(self._prefill_rows.pop(name)))


def keep_finished_outputs(outputs: Any, requests: Mapping[str, Request]) -> None:
    """Leave only those of vLLM's own outputs that end a request, with as many tokens as all of them had.

    Frames go their own way. To tell the gateway of each besides, one by one, would cost it more than all it does with
    them.
    """
    for client, batch in list(outputs.items()):
        ends = [output for output in batch.outputs if output.finish_reason is not None]
        for end in ends:
            end.new_token_ids = [0] * requests[end.request_id].num_output_tokens
        batch.outputs = ends
        if not (ends or batch.finished_requests or batch.scheduler_stats):
            del outputs[client]


def _may_step(computed: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether the steps that make frame `computed - prefix` of each have their text token and their credit.

    Steps in flight are counted in `computed` already, so this also holds under asynchronous scheduling.
    """
    frame = computed - rows[:, Field.PREFIX_LEN]
    has_text = (frame + rows[:, Field.TEXT_LEAD] < rows[:, Field.TEXT_LEN]) | (rows[:, Field.CLOSED] != 0)
    may: NDArray[np.bool_] = (frame < 0) | ((frame < rows[:, Field.CREDIT]) & has_text)
    return may


def _lead(computed: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Frames made that each listener has not heard; a prompt under way is short of everything."""
    frame = computed - rows[:, Field.PREFIX_LEN]
    return np.where(frame > 0, frame - rows[:, Field.HEARD], -1)


class JustInTimeScheduling(CreditScheduling):
    """Orders each step as late as can be. vLLM looks at what has come in between this and the order."""

    def has_requests(self) -> bool:
        if (wait_s := order_wait_s(self._timer, time.monotonic())) > 0:
            time.sleep(wait_s)
        return super().has_requests()

    def _shape(self, order: Any) -> StepShape | None:
        positions = order.total_num_scheduled_tokens
        return step_shape(len(order.num_scheduled_tokens), positions) if positions else None

    def get_grammar_bitmask(self, scheduler_output: Any) -> Any:
        """Speech has no grammar; but vLLM asks when it has launched the backbone."""
        self._timer.launched(time.monotonic())
        return super().get_grammar_bitmask(scheduler_output)


class CreditScheduler(CreditScheduling, Scheduler):
    """For engines that schedule each step after the one before it (CPU)."""


class CreditAsyncScheduler(JustInTimeScheduling, AsyncScheduler):
    """For engines that schedule a step while the one before it runs (CUDA)."""
