"""vLLM schedulers that leave a generation out of a step while it lacks text or frame credit.

A held generation keeps its place and its cache; vLLM's scheduler only does not see it during one `schedule` call. When
nothing but held generations remain, the engine sleeps until a process that wrote the slot tables wakes it, or until
`wake_s`. When more generations could step than one step has time for, those whose listeners are closest to running out
of audio go first, and equally urgent ones take turns. When the cache of keys and values is full, held generations give
up theirs, those with the most audio ahead first; they are computed again once they may step.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.pcm import FRAME_MS

from ....ipc.records import HEARTBEAT, HEARTBEAT_MARKER, pack_prefill, pack_release, pack_step, parse_release_marker
from ....ipc.slot_tables import Field
from ....step_times import MIN_SAMPLES, StepShape, StepTimer, StepTimes
from ..compat import Scheduler, free_pages, preempt, set_token_ids
from ..config import EngineConfig

if TYPE_CHECKING:
    from ..compat import Request
    from ..compat import Scheduler as _SchedulerBase
else:
    _SchedulerBase = object

_STEP_BUDGET_S = FRAME_MS / 1000
"""A step may take as long as the audio of one frame plays."""
_LIKELY_READY = 64
"""Requests that are looked at before all others, for one that may step."""
_BUDGET_INTERVAL_S = 1.0
"""Seconds between computations of the largest batch within the budget."""


class CreditScheduling(_SchedulerBase):
    """Mixed into a scheduler of vLLM's; reads the slot tables and reports to the processes that own generations."""

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(vllm_config, *args, **kwargs)
        # vLLM constructs schedulers in the engine's process, the only one that can map the tables for the engine.
        config = EngineConfig.of(vllm_config)
        tables = config.attach_tables()
        self._control, self._expected_s, self._completed = tables.control, tables.expected_s, tables.completed
        self._reports = config.connect_reports()
        self._timer: StepTimer[StepShape] = StepTimer(MIN_SAMPLES)
        self._times = StepTimes()
        self._slots = config.shape.slots
        self._max_batch, self._budgeted_s = self._slots, 0.0
        self._prefill_rows: dict[str, int] = {}
        """The row of each prefill request (`prompt_pool.py`), until the first step of its successor is over."""
        self._handed_over: set[str] = set()
        """Prefill requests that run for their successor's slot by now."""
        self._beginning: set[str] = set()
        """Requests of generations that have not made a frame in their slot."""
        self._has_step = False
        """Whether a step was found, and since then none was scheduled or finished and no request ended."""
        self.wake_s = math.inf
        """When the engine's loop has to ask again for work, although no process wakes it."""
        self.wait_for_notification: Callable[[float], bool] = lambda _: False
        """As `WakeupQueue.wait`; set by the engine's loop."""
        self._steps_scheduled = self._steps_finished = 0
        self._pending_releases: deque[tuple[int, bytes]] = deque()
        """Reports, each with the number of steps that must have finished before it is sent."""

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Schedules a step of the generations that may take one."""
        now_s = time.monotonic()
        self._has_step = False
        ready, held = self._split()
        if len(ready) > (largest := self._largest_batch(now_s)):
            ready, late = ready[:largest], ready[largest:]
            held += late
        parked = self._park()
        ready, held, preempted = self._relieve_cache(ready, held, now_s)
        self.running = ready
        try:
            output = super().schedule(*args, **kwargs)
        finally:
            # First come those that did not step: among equally urgent ones they go first in the next step. Behind the
            # others they would not step before these have ended, on a machine that is slower than their speech.
            self.running = held + self.running
            for request in parked + preempted:
                self.waiting.prepend_request(request)
        if preempted:
            # As vLLM does for those that it preempts itself: the worker forgets them.
            output.preempted_req_ids = {request.request_id for request in preempted} | (
                output.preempted_req_ids or set()
            )
        self._timer.ordered(output, now_s, self._shape(output))
        self._steps_scheduled += 1
        output.step_number = self._steps_scheduled
        if self._handed_over or self._beginning:
            output.first_frames = self._first_frames(output.num_scheduled_tokens)
        return output

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Takes in a finished step; reports its duration if it made nothing but frames."""
        now_s = time.monotonic()
        self._has_step = False
        noted, ended_s = self._completed[:2].tolist()
        ended = ended_s if noted == getattr(scheduler_output, "step_number", None) else None
        seconds = self._timer.finished(scheduler_output, now_s, ended_s=ended)
        # vLLM forgets the requests that end with this step.
        requests = self.requests.copy()
        result = super().update_from_output(scheduler_output, model_runner_output)
        keep_finished_outputs(result, requests)
        if self._prefill_rows:
            self._report_prefills(scheduler_output.num_scheduled_tokens, requests)
        self._steps_finished += 1
        self._report_releases()
        tokens: Sequence[int] = scheduler_output.num_scheduled_tokens.values()
        if tokens and max(tokens) == 1:
            self._times.record(len(tokens), seconds, now_s)
            self._reports.send(pack_step(len(tokens), seconds))
        return result

    def _shape(self, scheduler_output: Any) -> StepShape | None:  # noqa: ARG002  # the subclass reads it
        """The shape of a step whose end the next `schedule` call waits for; None without such a wait."""
        return None

    def has_requests(self) -> bool:
        """Whether the engine's loop has anything to do; it sleeps otherwise.

        The loop asks twice before each step: a step that was found is not looked for again.
        """
        if not self._has_step:
            self._has_step = self._has_work()
        if not self._has_step:
            self._timer.idle()
        return self._has_step

    def _has_work(self) -> bool:
        if not super().has_requests():
            return False
        waiting = self.get_num_unfinished_requests() - len(self.running)
        # Ended requests reach vLLM's worker with the next step; one for them alone would wait for a step under way.
        ended = self.has_finished_requests() and not self._timer.in_flight
        if ended or (waiting > len(self._preempted()[1]) and self._may_admit()):
            return True
        # Those that stepped last come last, and mostly go on.
        likely, others = self.running[-_LIKELY_READY:], self.running[:-_LIKELY_READY]
        return self._any_due(self._state(requests) for requests in (likely, others) if requests)

    def _may_admit(self) -> bool:
        """Whether a request that waits may have its first step now."""
        return True

    def _any_due(self, states: Iterable[tuple[NDArray[np.int64], NDArray[np.int64]]]) -> bool:
        """Whether there is a step to schedule now; `states`: of running requests, `_state`s of parts of them."""
        return any(may_step(*state).any() for state in states)

    def finish_requests(self, request_ids: Any, finished_status: Any) -> Any:
        """Ends aborted requests, between steps, and answers the markers among their names (`ipc/records.py`)."""
        self._has_step = False
        result = super().finish_requests(request_ids, finished_status)
        names = [request_ids] if isinstance(request_ids, str) else request_ids or ()
        for name in names:
            self._beginning.discard(name)
            if name in self._prefill_rows:
                self._end_prefill(name)
            if name == HEARTBEAT_MARKER:
                self._reports.send(HEARTBEAT)
            elif (released := parse_release_marker(name)) is not None:
                self._release(pack_release(*released))
        return result

    def _release(self, report: bytes) -> None:
        """Sends `report` once no step is in flight that may still read the row."""
        self._pending_releases.append((self._steps_scheduled, report))
        self._report_releases()

    def _report_releases(self) -> None:
        while self._pending_releases and self._pending_releases[0][0] <= self._steps_finished:
            self._reports.send(self._pending_releases.popleft()[1])

    def _largest_batch(self, now_s: float) -> int:
        """The most rows that a step has time for."""
        if now_s - self._budgeted_s >= _BUDGET_INTERVAL_S:
            self._budgeted_s, curve = now_s, self._times.curve(now_s)
            self._max_batch = max(1, curve.largest_batch_within(_STEP_BUDGET_S, self._slots))
        return self._max_batch

    def _split(self) -> tuple[list[Request], list[Request]]:
        """Running requests that may step, the most urgent ones first if not all fit, and those that may not."""
        running = self.running
        computed, rows = self._state(running)
        ready = may_step(computed, rows)
        chosen = self._chosen(np.flatnonzero(ready), frames_ahead(computed, rows), rows)
        if len(chosen) == len(running):
            return [running[at] for at in chosen.tolist()], []
        held = np.ones(len(running), np.bool_)
        held[chosen] = False
        return [running[at] for at in chosen.tolist()], [running[at] for at in np.flatnonzero(held).tolist()]

    def _chosen(
        self,
        ready: NDArray[np.int64],
        ahead: NDArray[np.int64],
        rows: NDArray[np.int64],  # noqa: ARG002  # the subclass reads them
    ) -> NDArray[np.int64]:
        """Of the running requests `ready`, by index, those that the next step takes, int64 [n].

        `ahead`, `rows`: of all running requests, their `frames_ahead` and rows of `control`.
        """
        return ready[np.argsort(ahead[ready], kind="stable")] if len(ready) > self._max_batch else ready

    def _state(self, requests: Sequence[Request]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Position of the next step of each request, int64 [n], and its slot's row, int64 [n, CONTROL_COLUMNS].

        Called several times per step for hundreds of requests, hence on whole arrays.
        """
        slots = np.array([request.prompt_token_ids[0] for request in requests], np.int64)
        computed = np.array([request.num_computed_tokens or next_position(request) for request in requests], np.int64)
        rows = self._control[slots]
        if self._prefill_rows:
            for at in rows[:, Field.SUCCESSOR].nonzero()[0].tolist():
                successor = int(rows[at, Field.SUCCESSOR]) - 1
                self._hand_over(requests[at], successor)
                rows[at] = self._control[successor]
        return computed, rows

    # A full cache

    def _preempted(self) -> tuple[list[Request], list[Request]]:
        """Waiting requests that were preempted: those that may step, the most urgent first, and the others."""
        preempted = [request for request in self.waiting if request.num_preemptions]
        if not preempted:
            return [], []
        computed, rows = self._state(preempted)
        ready = may_step(computed, rows)
        urgent = np.argsort(frames_ahead(computed, rows), kind="stable")
        return [preempted[at] for at in urgent if ready[at]], [preempted[at] for at in urgent if not ready[at]]

    def _park(self) -> list[Request]:
        """Takes preempted requests that may not step out of the queue and returns them; puts the others first."""
        ready, parked = self._preempted()
        if ready or parked:
            self.waiting.remove_requests(ready + parked)
        for request in reversed(ready):
            self.waiting.prepend_request(request)
        return parked

    def _relieve_cache(
        self, ready: list[Request], held: list[Request], now_s: float
    ) -> tuple[list[Request], list[Request], list[Request]]:
        """Preempts held generations until the next step has the pages it needs, those with the most audio ahead first.

        Returns `ready`, the most urgent first if pages are short, because vLLM preempts its last; the others of `held`;
        and those preempted, which are not in the queue yet.
        """
        page = self.block_size
        short = sum(request.num_computed_tokens % page == 0 for request in ready) - free_pages(self)
        if self.waiting:
            short += -(-self.waiting.peek_request().num_tokens // page)
        if short <= 0:
            return ready, held, []
        ready = [ready[at] for at in np.argsort(frames_ahead(*self._state(ready)), kind="stable")]
        kept, preempted = [], []
        for at in np.argsort(-frames_ahead(*self._state(held)), kind="stable"):
            request = held[at]
            if short <= 0:
                kept.append(request)
                continue
            short -= -(-request.num_computed_tokens // page)
            preempt(self, request, now_s)
            preempted.append(request)
        # vLLM has put them first in the queue: they would take their pages back at once.
        self.waiting.remove_requests(preempted)
        return ready, kept, preempted

    # Prefilled prompts; the whole protocol is described in `prompt_pool.py`.

    def add_request(self, request: Request) -> None:
        """Adds a request; one whose slot is a row of the prompt pool is a prefill."""
        if (row := request.prompt_token_ids[0]) >= self._slots:
            self._prefill_rows[request.request_id] = row
        else:
            self._beginning.add(request.request_id)
        super().add_request(request)

    def _hand_over(self, request: Request, successor: int) -> None:
        """Makes a prefill request its successor's, also where vLLM preempts and recomputes it."""
        set_token_ids(request, successor)
        self._handed_over.add(request.request_id)

    def _report_prefills(self, stepped: Mapping[str, int], requests: Mapping[str, Request]) -> None:
        """Reports rows whose prompt was computed by this step, and rows whose successor made its first step."""
        for name in [name for name in self._prefill_rows if name in stepped]:
            if name in self._handed_over:
                self._end_prefill(name)
            elif requests[name].num_output_tokens:
                self._reports.send(pack_prefill(self._prefill_rows[name]))

    def _first_frames(self, scheduled: Mapping[str, int]) -> list[tuple[int, int, bool]]:
        """Of requests whose frame 0 this step makes: talker slot, codec slot, and whether the stream there is fresh."""
        found: list[tuple[int, int, bool]] = []
        begun = []
        for name in self._handed_over | self._beginning:
            if name not in scheduled:
                continue
            request = self.requests[name]
            slot = request.prompt_token_ids[0]
            prefix_len, codec = (int(self._control[slot, field]) for field in (Field.PREFIX_LEN, Field.CODEC_SLOT))
            # The step that was just scheduled is counted as computed already.
            if codec and request.num_computed_tokens == prefix_len + 1:
                found.append((slot, abs(codec) - 1, codec > 0))
            if request.num_computed_tokens > prefix_len:
                begun.append(name)
        self._beginning.difference_update(begun)
        return found

    def _end_prefill(self, name: str) -> None:
        self._handed_over.discard(name)
        self._release(pack_prefill(self._prefill_rows.pop(name)))


class CreditScheduler(CreditScheduling, Scheduler):
    """For engines that schedule each step after the one before it (CPU)."""


def next_position(request: Request) -> int:
    """The position of the next step of a request that has begun, steps in flight counted as done.

    A preempted request has no computed positions; the step that repeats all of them is the next.
    """
    position: int = request.num_computed_tokens or request.num_tokens - 1
    return position


def may_step(computed: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether the next step of each generation has its text token and its credit, bool [n].

    `computed`: position of that step, int64 [n]; `rows`: of the `control` table.
    """
    frame = computed - rows[:, Field.PREFIX_LEN]
    has_text = (frame + rows[:, Field.TEXT_LEAD] < rows[:, Field.TEXT_LEN]) | (rows[:, Field.CLOSED] != 0)
    ready: NDArray[np.bool_] = (frame < 0) | ((frame < rows[:, Field.CREDIT]) & has_text)
    return ready


def frames_ahead(computed: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Frames made that each listener has not heard yet, int64 [n]; -1 before the first frame, the most urgent."""
    frame = computed - rows[:, Field.PREFIX_LEN]
    return np.where(frame > 0, frame - rows[:, Field.HEARD], -1)


def keep_finished_outputs(outputs: Any, requests: Mapping[str, Request]) -> None:
    """Drops vLLM's outputs except those that end a request; these get as many tokens as the request had in all.

    Frames travel as reports. An output per frame besides would cost the gateway more time than the frames themselves.
    """
    for client, batch in list(outputs.items()):
        ends = [output for output in batch.outputs if output.finish_reason is not None]
        for end in ends:
            end.new_token_ids = [0] * requests[end.request_id].num_output_tokens
        batch.outputs = ends
        if not (ends or batch.finished_requests or batch.scheduler_stats):
            del outputs[client]
