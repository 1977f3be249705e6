"""vLLM's AsyncLLM and the process it runs in: started, asked, watched, and killed when it hangs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import time
from collections.abc import Callable
from copy import copy
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ...errors import EngineLost
from ...ipc.records import HEARTBEAT_MARKER
from ...ipc.watchdog import HeartbeatWatchdog

if TYPE_CHECKING:
    from vllm.v1.engine import EngineCoreRequest
    from vllm.v1.engine.async_llm import AsyncLLM


log = logging.getLogger(__name__)

T = TypeVar("T")

HANG_S = 5.0
"""An engine that has not answered for so long, and for longer than its slowest step could take, is taken for dead."""
HEARTBEAT_INTERVAL_S = 0.25
"""Pause between looks at whether it answers."""


class EngineProcess:
    """Belongs to the event loop. `slowest_s`: what the longest step that it may be at can take, in seconds.

    `on_loss` is called once, with the reason, when it dies or hangs by itself.
    """

    def __init__(self, slowest_s: Callable[[], float], on_loss: Callable[[str], None]) -> None:
        self._slowest_s, self._on_loss = slowest_s, on_loss
        self.llm: AsyncLLM | None = None
        """vLLM's front, while it runs."""
        self._requests: RequestTemplate | None = None
        self._processes: set[BaseProcess] = set()
        self._watching: asyncio.Task[None] | None = None
        self._watchdog = HeartbeatWatchdog(HANG_S, max_look_delay_s=HANG_S)
        self._lost = False
        self._telling: set[asyncio.Future[None]] = set()

    @property
    def alive(self) -> bool:
        return self.llm is not None and not self.llm.errored and not self._lost

    async def start(self, load: Callable[[], AsyncLLM], timeout_s: float) -> None:
        """`load` blocks until the model is loaded. Raises TimeoutError and what `load` does.

        Cancelling it stops the engine process too, once `load` has returned.
        """
        # It cannot be interrupted: a cancelled start must still learn of the process to stop it.
        loading = asyncio.get_running_loop().run_in_executor(None, self._load, load)
        try:
            self.llm = await asyncio.wait_for(asyncio.shield(loading), timeout_s)
        except (TimeoutError, asyncio.CancelledError):
            loading.add_done_callback(_shut_down_late)
            raise

    def _load(self, load: Callable[[], AsyncLLM]) -> AsyncLLM:
        before = set(multiprocessing.active_children())
        llm = load()
        self._processes = set(multiprocessing.active_children()) - before
        return llm

    async def serve(self, limit: int, end_token: int) -> None:
        """Be ready for requests, which end after `limit` tokens or `end_token`, and watch it from now on."""
        assert self.llm is not None
        self._requests = await RequestTemplate.of(self.llm, limit, end_token)
        self._watching = asyncio.create_task(self._watch(), name="talker-watchdog")

    async def close(self) -> None:
        """Stop the process and wait for its end. Safe to call twice."""
        llm, self.llm = self.llm, None
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.wait({watching})
        if llm is not None:
            await asyncio.to_thread(shut_down_engine, llm)

    def request(self, name: str, slot: int, prompt_len: int) -> EngineCoreRequest:
        """For a generation in that slot; `name` tells it from others that run."""
        assert self._requests is not None
        return self._requests.make(name, slot, prompt_len)

    async def run(self, request: EngineCoreRequest) -> int:
        """To its end; returns the number of steps it took. Raises EngineLost. Cancelling aborts it."""
        from vllm.v1.engine.exceptions import EngineDeadError

        assert self.llm is not None
        assert request.sampling_params is not None
        steps = 0
        try:
            # Leaving the iteration early, by cancellation, makes vLLM abort the request.
            async with contextlib.aclosing(
                self.llm.generate(request, request.sampling_params, request.request_id)
            ) as outputs:
                async for output in outputs:
                    steps = len(output.outputs[0].token_ids)
        except EngineDeadError as error:
            self.lose("the talker's engine died")
            raise EngineLost("the talker's engine died") from error
        return steps

    def send_marker(self, mark: str) -> None:
        """Send the scheduler in it one of `frames.py`'s marks; the answer comes among the reports."""
        if self.llm is not None:
            telling = asyncio.ensure_future(self.llm.engine_core.abort_requests_async([mark]))
            self._telling.add(telling)
            telling.add_done_callback(self._told)

    def _told(self, telling: asyncio.Future[None]) -> None:
        self._telling.discard(telling)
        if not telling.cancelled() and (error := telling.exception()) is not None:
            log.warning("the engine could not be told: %r", error)

    async def ask_worker(self, question: Callable[[Any], T]) -> T:
        """What `question` returns in the process, of vLLM's worker; for measurements, while nobody speaks.

        vLLM takes it only where VLLM_ALLOW_INSECURE_SERIALIZATION is set. Raises EngineLost.
        """
        if self.llm is None:
            raise EngineLost("the engine is not running")
        (answer,) = await self.llm.collective_rpc(cast(str, question))  # what vLLM's annotation knows of
        return cast(T, answer)

    def on_message(self) -> None:
        """It has reported something, whatever it was: it lives."""
        self._watchdog.on_message(asyncio.get_running_loop().time())

    def lose(self, reason: str) -> None:
        """Give it up, and make sure that the process is gone; only the first reason counts."""
        if self._lost or self.llm is None:
            return
        self._lost = True
        log.error("%s", reason)
        for process in self._processes:
            process.kill()
        self._on_loss(reason)

    async def _watch(self) -> None:
        """Ask the engine for a sign of life again and again; take it for dead when none comes."""
        loop = asyncio.get_running_loop()
        planned_s = loop.time()
        while not self._lost:
            now_s = loop.time()
            if self._watchdog.expired(now_s, planned_s, self._slowest_s()):
                self.lose("the talker's engine hangs")
            elif self._watchdog.probe_due(now_s, HEARTBEAT_INTERVAL_S):
                self._watchdog.on_request(now_s)
                self.send_marker(HEARTBEAT_MARKER)
            planned_s = now_s + HEARTBEAT_INTERVAL_S
            await asyncio.sleep(HEARTBEAT_INTERVAL_S)


def _shut_down_late(loading: asyncio.Future[AsyncLLM]) -> None:
    if not loading.cancelled() and loading.exception() is None:
        shut_down_engine(loading.result())


class RequestTemplate:
    """Makes requests as vLLM's own front does, without its looking through each anew: they differ in three fields.

    Until `limit` tokens were drawn, or `end_token` was.
    """

    def __init__(self, template: EngineCoreRequest) -> None:
        self._template = template

    @classmethod
    async def of(cls, llm: AsyncLLM, limit: int, end_token: int) -> RequestTemplate:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(
            temperature=0.0,
            max_tokens=limit,
            stop_token_ids=[end_token],
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        tasks = await llm.get_supported_tasks()
        return cls(llm.input_processor.process_inputs("", {"prompt_token_ids": [0]}, params, supported_tasks=tasks))

    def make(self, name: str, slot: int, prompt_len: int) -> EngineCoreRequest:
        """A generation's, in `slot`."""
        request = copy(self._template)
        request.request_id, request.prompt_token_ids, request.arrival_time = name, [slot] * prompt_len, time.time()
        return request


def shut_down_engine(llm: AsyncLLM) -> None:
    """Stop the engine process and wait for its end; a second call does nothing."""
    if llm.output_handler is not None:
        # It would report the end we ask for as the engine's death.
        llm.output_handler.get_loop().call_soon_threadsafe(llm.output_handler.cancel)
    llm.shutdown()
    # Its finaliser shuts down again, at a time when the interpreter may have been taken apart already.
    llm.shutdown = lambda *_, **__: None
