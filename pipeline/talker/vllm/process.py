"""The engine's process as its owner sees it: started, given requests, watched, and killed when it hangs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import threading
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import EngineLost
from ...ipc.records import HEARTBEAT_MARKER
from ...ipc.watchdog import HeartbeatWatchdog
from . import compat

if TYPE_CHECKING:
    from .compat import AsyncLLM, EngineCoreRequest


log = logging.getLogger(__name__)

T = TypeVar("T")

HANG_S = 5.0
"""Seconds without an answer, beyond what the slowest step can take, after which the engine counts as dead."""
KILL_INTERVAL_S = 0.25
"""Seconds between looks at whether a start that was cancelled has made another process."""
HEARTBEAT_INTERVAL_S = 0.25
"""Seconds between looks at whether the engine answers."""


class EngineProcess:
    """Owns vLLM's front and the engine's process; belongs to the event loop.

    `slowest_s` returns how long the step under way can take, in seconds. `on_loss` is called once, with the reason,
    when the engine dies or hangs by itself.
    """

    def __init__(self, slowest_s: Callable[[], float], on_loss: Callable[[str], None]) -> None:
        self._slowest_s, self._on_loss = slowest_s, on_loss
        self.llm: AsyncLLM | None = None
        """vLLM's front, while it runs."""
        self._template: EngineCoreRequest | None = None
        self._processes: set[BaseProcess] = set()
        self._watching: asyncio.Task[None] | None = None
        self._watchdog = HeartbeatWatchdog(HANG_S, max_look_delay_s=HANG_S)
        self._lost = False
        self._sending: set[asyncio.Future[None]] = set()

    @property
    def alive(self) -> bool:
        return self.llm is not None and not self.llm.errored and not self._lost

    async def start(self, load: Callable[[], AsyncLLM], timeout_s: float) -> None:
        """Runs `load`, which blocks until the model is loaded, in a thread. Raises TimeoutError and what `load` raises.

        Cancelling it kills the engine's process, also one that `load` makes later, and does not wait for the thread.
        """
        before = set(multiprocessing.active_children())
        # The thread cannot be interrupted: after a cancellation its result must still be shut down.
        loading = _run_in_daemon_thread(load)
        try:
            self.llm = await asyncio.wait_for(asyncio.shield(loading), timeout_s)
        except (TimeoutError, asyncio.CancelledError):
            loading.add_done_callback(_shut_down_late)
            _kill_children_until(loading, before)
            raise
        self._processes = set(multiprocessing.active_children()) - before

    async def serve(self, max_tokens: int, end_token: int) -> None:
        """Accepts requests from now on, which end after `max_tokens` tokens or with `end_token`, and watches."""
        assert self.llm is not None
        self._template = await compat.request_template(self.llm, max_tokens, end_token)
        self._watching = asyncio.create_task(self._watch(), name="talker-watchdog")

    async def close(self) -> None:
        """Stops the process and waits for its end. Safe to call twice."""
        llm, self.llm = self.llm, None
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.wait({watching})
        if llm is not None:
            await asyncio.to_thread(compat.shut_down, llm)

    async def run(self, name: str, slot: int, prompt_len: int) -> int:
        """Runs a request of a generation in `slot` to its end; `name` is unique among those that run.

        Returns the number of its steps. Raises EngineLost. Cancelling it aborts the request.
        """
        if self.llm is None or self._template is None:
            raise EngineLost("the engine is not running")
        request = compat.copy_request(self._template, name, [slot] * prompt_len, time.time())
        steps = 0
        try:
            # Leaving the iteration early, by cancellation, makes vLLM abort the request.
            async with contextlib.aclosing(
                self.llm.generate(request, request.sampling_params, request.request_id)
            ) as outputs:
                async for output in outputs:
                    steps = len(output.outputs[0].token_ids)
        except compat.EngineDeadError as error:
            self.declare_lost("the talker's engine died")
            raise EngineLost("the talker's engine died") from error
        return steps

    def send_marker(self, marker: str) -> None:
        """Sends the scheduler one of the markers of `ipc/records.py`; the answer is a report."""
        if self.llm is not None:
            sending = asyncio.ensure_future(compat.send_to_scheduler(self.llm, marker))
            self._sending.add(sending)
            sending.add_done_callback(self._sent)

    def _sent(self, sending: asyncio.Future[None]) -> None:
        self._sending.discard(sending)
        if not sending.cancelled() and (error := sending.exception()) is not None:
            log.warning("marker not sent to the engine: %r", error)

    async def ask_worker(self, question: Callable[[Any], T]) -> T:
        """Returns what `question` returns in the engine's process, given vLLM's worker; for measurements while idle.

        vLLM refuses it unless VLLM_ALLOW_INSECURE_SERIALIZATION is set. Raises EngineLost.
        """
        if self.llm is None:
            raise EngineLost("the engine is not running")
        return await compat.call_in_worker(self.llm, question)

    def on_message(self) -> None:
        """Notes a report of the engine, whatever it is, as a sign of life."""
        self._watchdog.on_message(asyncio.get_running_loop().time())

    def declare_lost(self, reason: str) -> None:
        """Kills the process and reports the loss; only the first reason counts."""
        if self._lost or self.llm is None:
            return
        self._lost = True
        log.error("%s", reason)
        for process in self._processes:
            process.kill()
        self._on_loss(reason)

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        planned_s = loop.time()
        while not self._lost:
            now_s = loop.time()
            if self._watchdog.expired(now_s, planned_s, self._slowest_s()):
                self.declare_lost("the talker's engine hangs")
            elif self._watchdog.probe_due(now_s, HEARTBEAT_INTERVAL_S):
                self._watchdog.on_request(now_s)
                self.send_marker(HEARTBEAT_MARKER)
            planned_s = now_s + HEARTBEAT_INTERVAL_S
            await asyncio.sleep(HEARTBEAT_INTERVAL_S)


def _run_in_daemon_thread(load: Callable[[], AsyncLLM]) -> asyncio.Future[AsyncLLM]:
    """Runs `load` in a thread that the end of the process does not wait for, as it would for one of the executor's."""
    loop = asyncio.get_running_loop()
    loading: asyncio.Future[AsyncLLM] = loop.create_future()

    def run() -> None:
        try:
            answer = partial(loading.set_result, load())
        except BaseException as error:
            answer = partial(loading.set_exception, error)
        # The loop is closed when the process ends meanwhile.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(answer)

    threading.Thread(target=run, name="engine-start", daemon=True).start()
    return loading


def _kill_children_until(loading: asyncio.Future[AsyncLLM], before: set[BaseProcess]) -> None:
    """Kills child processes that are not among `before`, also later ones, until `loading` is done."""
    if loading.done():
        return
    for process in set(multiprocessing.active_children()) - before:
        process.kill()
    asyncio.get_running_loop().call_later(KILL_INTERVAL_S, _kill_children_until, loading, before)


def _shut_down_late(loading: asyncio.Future[AsyncLLM]) -> None:
    if not loading.cancelled() and loading.exception() is None:
        compat.shut_down(loading.result())
