"""The scheduler of engines that schedule a step while the one before it runs (CUDA)."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....cuda import fast_paths
from ....ipc.slot_tables import Field
from ....step_times import StepShape, order_wait_s, step_end_s, step_shape
from ..compat import AsyncScheduler
from .credit import CreditScheduling, frames_ahead, may_step
from .frame_rows import FrameRowScheduling
from .joint_steps import FEW_ROWS, JointSteps, Ready
from .shared_prefixes import SharedPrefixScheduling

_END_MARGIN_S = 0.0003
"""The loop waits for the end of a step from this long before it is expected, so that the end is seen, and measured."""


class JustInTimeScheduling(CreditScheduling):
    """Schedules each step as late as possible; vLLM takes in new requests between the wait and the `schedule` call."""

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(vllm_config, *args, **kwargs)
        # Without it a step of 16 takes as long as one of 32. The worker, in this process, is warm by now.
        small_is_quick = fast_paths.in_use(fast_paths.FastPath.PERSISTENT_PREDICTOR)
        self._joint_steps = JointSteps(FEW_ROWS if small_is_quick else 0)
        self._newest_expected_s = -math.inf
        """Since when the newest of the utterances that are about to begin is expected; read at every look for work."""

    def has_requests(self) -> bool:
        """Waits until the next step has to be scheduled, then answers.

        Where none is due, what becomes due while a step is under way is scheduled behind it: the loop would wait for
        its end.
        """
        if (wait_s := order_wait_s(self._timer, time.monotonic())) > 0:
            time.sleep(wait_s)
        while not (found := super().has_requests()):
            wait_s = min(step_end_s(self._timer) - _END_MARGIN_S, self.wake_s) - time.monotonic()
            if wait_s <= 0 or not self.wait_for_notification(wait_s):
                break
        return found

    def _has_work(self) -> bool:
        self.wake_s, self._newest_expected_s = math.inf, float(self._expected_s.max())
        return super()._has_work()

    def _may_admit(self) -> bool:
        """As in the base class; prompts that are computed ahead do not delay an utterance that is about to begin."""
        now_s = time.monotonic()
        if self._has_new() or self._preempted()[0]:
            return True
        hold_s = self._joint_steps.hold_s(self._newest_expected_s, now_s)
        self.wake_s = min(self.wake_s, now_s + hold_s)
        return not hold_s

    def _any_due(self, states: Iterable[tuple[NDArray[np.int64], NDArray[np.int64]]]) -> bool:
        now_s, ready, wait_s = time.monotonic(), Ready(), math.inf
        for computed, rows in states:
            can_step = may_step(computed, rows)
            ready += Ready.of(frames_ahead(computed, rows)[can_step], rows[can_step, Field.PACED] != 0)
            if not (wait_s := self._joint_steps.wait_s(ready, now_s, self._newest_expected_s)):
                return True
        self.wake_s = min(self.wake_s, now_s + wait_s)
        return False

    def _chosen(self, ready: NDArray[np.int64], ahead: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
        ready = super()._chosen(ready, ahead, rows)
        paced = rows[ready, Field.PACED] != 0
        return ready[
            self._joint_steps.choose(
                ahead[ready], paced, time.monotonic(), begins=self._has_new(), expected_s=self._newest_expected_s
            )
        ]

    def _has_new(self) -> bool:
        """Whether an utterance waits that has not begun; prompts that are computed ahead are none."""
        return any(
            not request.num_preemptions and request.prompt_token_ids[0] < self._slots for request in self.waiting
        )

    def _shape(self, scheduler_output: Any) -> StepShape | None:
        positions = scheduler_output.total_num_scheduled_tokens
        return step_shape(len(scheduler_output.num_scheduled_tokens), positions) if positions else None

    def get_grammar_bitmask(self, scheduler_output: Any) -> Any:
        """Notes the launch: vLLM calls this for a grammar, which speech lacks, when it has launched the backbone."""
        self._timer.launched(time.monotonic())
        return super().get_grammar_bitmask(scheduler_output)


class CreditAsyncScheduler(JustInTimeScheduling, SharedPrefixScheduling, FrameRowScheduling, AsyncScheduler):
    """vLLM's asynchronous scheduler with everything that an engine on a GPU needs."""
