"""The engine's process, with vLLM replaced by a fake: watching, markers, loss."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import dataclass, field

import pytest
from fakes.waiting import DEADLINE_S
from voxgate.pipeline.errors import EngineLost
from voxgate.pipeline.ipc.records import HEARTBEAT_MARKER, release_marker
from voxgate.pipeline.talker.vllm.compat import copy_request
from voxgate.pipeline.talker.vllm.process import HANG_S, EngineProcess

from ....fakes.virtual_time import run


class FakeVllm:
    """vLLM's front, its channel and its process in one; answers heartbeats while `answers` is set."""

    def __init__(self, process: EngineProcess) -> None:
        self.errored = False
        self.answers = True
        self.markers: list[str] = []
        self.killed = 0
        self.engine_core = self
        process.llm, process._processes = self, {self}  # type: ignore[assignment] # a fake
        self._process = process

    async def abort_requests_async(self, names: list[str]) -> None:
        self.markers += names
        if self.answers:
            self._process.on_message()

    def kill(self) -> None:
        self.killed += 1


def test_silent_process_is_probed_then_declared_lost() -> None:
    async def scene() -> None:
        losses: list[str] = []
        process = EngineProcess(lambda: 0.0, losses.append)
        vllm = FakeVllm(process)
        watching = asyncio.create_task(process._watch())
        await asyncio.sleep(60)
        assert process.alive
        assert 60 <= vllm.markers.count(HEARTBEAT_MARKER) <= 240
        vllm.answers = False
        hangs_s = asyncio.get_running_loop().time()
        await watching
        assert HANG_S <= asyncio.get_running_loop().time() - hangs_s <= HANG_S + 1
        assert (process.alive, vllm.killed, losses) == (False, 1, ["the talker's engine hangs"])

    run(scene())


def test_long_step_extends_the_limit() -> None:
    async def scene() -> None:
        process = EngineProcess(lambda: 20.0, lambda _: None)
        FakeVllm(process).answers = False
        await process._watch()
        assert HANG_S + 20 <= asyncio.get_running_loop().time() <= HANG_S + 21

    run(scene())


def test_loss_is_reported_once_with_first_reason() -> None:
    losses: list[str] = []
    process = EngineProcess(lambda: 0.0, losses.append)
    process.declare_lost("before it was there")
    vllm = FakeVllm(process)
    process.declare_lost("first")
    process.declare_lost("second")
    assert (losses, vllm.killed, process.alive) == (["first"], 1, False)


def test_markers_are_sent_as_aborts_and_failures_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        process = EngineProcess(lambda: 0.0, lambda _: None)
        process.send_marker(release_marker(1, 17))  # no process runs
        vllm = FakeVllm(process)
        process.send_marker(release_marker(2, 18))
        await asyncio.sleep(0)
        assert vllm.markers == [release_marker(2, 18)]

        async def broken(_: list[str]) -> None:
            raise OSError("gone")

        vllm.abort_requests_async = broken  # type: ignore[method-assign] # a fake
        with caplog.at_level(logging.WARNING):
            process.send_marker(release_marker(3, 19))
            await asyncio.sleep(0.01)
        assert "gone" in caplog.text

    run(scene())


async def test_engine_loaded_after_timeout_is_shut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    shut_down: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    monkeypatch.setattr("voxgate.pipeline.talker.vllm.compat.shut_down", shut_down.set_result)
    may_load, loaded = threading.Event(), object()

    def load() -> object:
        may_load.wait(DEADLINE_S)
        return loaded

    process = EngineProcess(lambda: 0.0, lambda _: None)
    with pytest.raises(TimeoutError):
        await process.start(load, 0.0)  # type: ignore[arg-type] # a fake
    assert not process.alive
    assert not shut_down.done()
    may_load.set()
    assert await asyncio.wait_for(shut_down, DEADLINE_S) is loaded


async def test_cancelled_start_kills_processes_that_appear_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a gateway must not wait until vLLM, imported meanwhile, has loaded a model."""
    killed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    class Child:
        def kill(self) -> None:
            if not killed.done():
                killed.set_result(None)

    children: list[Child] = []
    monkeypatch.setattr("multiprocessing.active_children", lambda: children)
    may_fail = threading.Event()

    def load() -> object:
        may_fail.wait(DEADLINE_S)
        raise RuntimeError("Engine core initialization failed")

    process = EngineProcess(lambda: 0.0, lambda _: None)
    starting = asyncio.create_task(process.start(load, 300.0))  # type: ignore[arg-type] # a fake
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    children.append(Child())
    await asyncio.wait_for(killed, DEADLINE_S)
    may_fail.set()


async def test_asking_without_process_raises() -> None:
    process = EngineProcess(lambda: 0.0, lambda _: None)
    with pytest.raises(EngineLost, match="not running"):
        await process.ask_worker(lambda worker: worker)
    await process.close()
    await process.close()


@dataclass
class Template:
    request_id: str = ""
    prompt_token_ids: list[int] = field(default_factory=list)
    arrival_time: float = 0.0
    sampling_params: str = "the engine's"


def test_copied_requests_differ_in_three_fields() -> None:
    template = Template()
    one, other = copy_request(template, "17", [3] * 4, 7.0), copy_request(template, "18", [5] * 2, 8.0)
    assert (one.request_id, one.prompt_token_ids) == ("17", [3, 3, 3, 3])
    assert (other.request_id, other.prompt_token_ids) == ("18", [5, 5])
    assert one.sampling_params == other.sampling_params == template.sampling_params
    assert (one.arrival_time, other.arrival_time) == (7.0, 8.0)
    assert template == Template()
