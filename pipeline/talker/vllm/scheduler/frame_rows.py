"""Schedules rows that make one more frame, and takes in their frames, without vLLM's work per request.

vLLM's scheduler treats every request as if it could have a prompt, drafts, a grammar or log probabilities: 18 us of
Python per row and step, 9 ms of a step of 512 rows. For a row that makes one more frame all of it comes down to a few
counters, and a page of the cache every few frames. vLLM does not see these rows during a call, as it does not see held
ones (`credit.py`), and gets all others: prompts, requests near their limits, the first and the last token of each,
preempted ones, and everything when pages are short.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..compat import allocate_page, free_pages

if TYPE_CHECKING:
    from ..compat import AsyncScheduler as _SchedulerBase
    from ..compat import Request
else:
    _SchedulerBase = object


class FrameRowScheduling(_SchedulerBase):
    """Mixed into vLLM's asynchronous scheduler; what it returns and leaves behind equals vLLM's own."""

    running: list[Request]

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Schedules a step of everything that can run."""
        frames, others = self._divided()
        if not self._fit(frames, others):
            return super().schedule(*args, **kwargs)
        page = self.block_size
        pages = [None if request.num_computed_tokens % page else allocate_page(self, request) for request in frames]
        running, count = self.running, len(others)
        self.running = others
        self.max_num_scheduled_tokens -= len(frames)
        try:
            output = super().schedule(*args, **kwargs)
        finally:
            self.max_num_scheduled_tokens += len(frames)
            # Behind those that ran before vLLM has put those that it admitted.
            self.running = running + self.running[count:]
        _add_rows(output, frames, pages)
        return output

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Takes in a finished step; the outputs lack those of requests that go on."""
        scheduled: dict[str, int] = scheduler_output.num_scheduled_tokens
        scheduler_output.num_scheduled_tokens = self._append_frames(scheduled, model_runner_output)
        try:
            return super().update_from_output(scheduler_output, model_runner_output)
        finally:
            scheduler_output.num_scheduled_tokens = scheduled

    def _divided(self) -> tuple[list[Request], list[Request]]:
        """Running requests whose next step makes one frame and is not among the last that they may take; the others."""
        frames: list[Request] = []
        others: list[Request] = []
        longest = self.max_model_len
        for request in self.running:
            computed = request.num_computed_tokens
            plain = (
                computed + 1 == request.num_tokens + request.num_output_placeholders
                and computed + 2 < request.num_prompt_tokens + request.max_tokens
                and computed + 2 <= longest
                and not request.is_prefill_chunk
            )
            (frames if plain else others).append(request)
        return frames, others

    def _fit(self, frames: Sequence[Request], others: Sequence[Request]) -> bool:
        """Whether all can run in one step, with pages for each: vLLM then preempts none, in whatever order they run."""
        page = self.block_size
        pages = sum(request.num_computed_tokens % page == 0 for request in frames)
        positions = len(frames)
        for request in others:
            end = request.num_tokens + request.num_output_placeholders
            pages += -(-end // page)
            positions += end - request.num_computed_tokens
        return pages <= free_pages(self) and positions <= int(self.max_num_scheduled_tokens)

    def _append_frames(self, scheduled: dict[str, int], model_runner_output: Any) -> dict[str, int]:
        """Appends the tokens of requests that go on; returns the rows of `scheduled` that vLLM has to take in."""
        tokens, row_of = model_runner_output.sampled_token_ids, model_runner_output.req_id_to_index
        requests, longest = self.requests, self.max_model_len
        others: dict[str, int] = {}
        for name, count in scheduled.items():
            request = requests.get(name)
            # A token that is the request's own slot is no end. Those of a preempted request's last steps are counted
            # differently, and the first of a request comes with statistics.
            if (
                count == 1
                and request is not None
                and tokens[row_of[name]] == request.prompt_token_ids[:1]
                and not request.num_stale_output_tokens
                and request.prefill_stats is None
                and request.num_output_tokens + 1 < request.max_tokens
                and request.num_tokens + 1 < longest
            ):
                request.append_output_token_ids(request.prompt_token_ids[0])
                request.num_in_flight_tokens -= 1
                request.num_output_placeholders -= 1
            else:
                others[name] = count
        return others


def _add_rows(output: Any, frames: Sequence[Request], pages: Sequence[Any]) -> None:
    """Adds a row per request to vLLM's scheduler output, and counts the row as ordered, as vLLM does at the end of
    `schedule`."""
    names = [request.request_id for request in frames]
    computed = [request.num_computed_tokens for request in frames]
    cached = output.scheduled_cached_reqs
    cached.req_ids[:0] = names
    cached.num_computed_tokens[:0] = computed
    cached.new_block_ids[:0] = pages
    cached.num_output_tokens[:0] = [
        position + 1 - request.num_prompt_tokens for position, request in zip(computed, frames, strict=True)
    ]
    output.num_scheduled_tokens = dict.fromkeys(names, 1) | output.num_scheduled_tokens
    output.total_num_scheduled_tokens += len(names)
    for request in frames:
        request.num_computed_tokens += 1
        request.num_in_flight_tokens += 1
        request.num_output_placeholders += 1
