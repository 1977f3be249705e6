"""Prefix caching: utterances whose prompts begin alike share the pages of the cache that hold the beginning.

The positions before an utterance's text are the same for every utterance in a cloned voice, or with one instruction.
The first utterance that computes them leaves them behind; later ones take their whole pages over and compute what
follows. No request writes a page that another one reads: a request writes behind the positions that it took over.

vLLM's own cache of prefixes finds them by token ids, and these are the slot's here, at every position.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....ipc.slot_tables import Field, SlotTables
from ..compat import drop_pages, free_pages, hold_pages, offer_pages, pages_of
from ..config import EngineConfig

if TYPE_CHECKING:
    from ..compat import AsyncScheduler as _SchedulerBase
    from ..compat import Request
else:
    _SchedulerBase = object

MAX_SHARED_PREFIXES = 64
"""Beginnings of prompts that are kept: those used last."""


class SharedPrefixScheduling(_SchedulerBase):
    """Mixed into a scheduler of vLLM's: keeps pages of prompts, and gives all of them up when pages are short."""

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(vllm_config, *args, **kwargs)
        self._prompt_tables = EngineConfig.of(vllm_config).attach_tables()
        self._shared: OrderedDict[bytes, Sequence[Any]] = OrderedDict()
        """Pages by the beginning of the prompt, the one used last at the end."""
        offer_pages(self, self._shared_pages)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Schedules a step; requests that begin with it take over the pages that earlier ones have left behind."""
        self._give_up_if_short()
        output = super().schedule(*args, **kwargs)
        # Only now: pages that this step computes cannot be read in the same step.
        for new in output.scheduled_new_reqs:
            self._keep(self.requests[new.req_id])
        return output

    def _shared_pages(self, request: Request) -> Sequence[Any]:
        """The pages that a request can take over, the first ones of its prompt; none if there are none."""
        beginning = self._beginning_of(request)[1]
        if beginning not in self._shared:
            return ()
        self._shared.move_to_end(beginning)
        return self._shared[beginning]

    def _keep(self, request: Request) -> None:
        count, beginning = self._beginning_of(request)
        # A prompt can be computed in parts.
        if not count or beginning in self._shared or request.num_computed_tokens < count * self.block_size:
            return
        self._shared[beginning] = pages = pages_of(self, request)[:count]
        hold_pages(self, pages)
        if len(self._shared) > MAX_SHARED_PREFIXES:
            drop_pages(self, self._shared.popitem(last=False)[1])

    def _beginning_of(self, request: Request) -> tuple[int, bytes]:
        """Pages that hold nothing but positions before the request's text, and what their content depends on."""
        slot = request.prompt_token_ids[0]
        positions = min(shared_positions(self._prompt_tables, slot), request.num_tokens - 1)
        count = positions // self.block_size
        if not count:
            return 0, b""
        return count, b"".join(self._prompt_tables.beginning(slot, count * self.block_size))

    def _give_up_if_short(self) -> None:
        needed = len(self.running)
        if self.waiting:
            needed += -(-self.waiting.peek_request().num_tokens // self.block_size)
        if self._shared and free_pages(self) < needed:
            for pages in self._shared.values():
                drop_pages(self, pages)
            self._shared.clear()


def shared_positions(tables: SlotTables, slot: int) -> int:
    """Positions of a slot's prompt that do not depend on the text to be spoken: its first ones."""
    prefix_len, text_lead = (int(tables.control[slot, field]) for field in (Field.PREFIX_LEN, Field.TEXT_LEAD))
    return prefix_len - max(0, text_lead)
