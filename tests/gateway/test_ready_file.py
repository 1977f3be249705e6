from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from voxgate.gateway.ready_file import GatewayExited, ReadyGateway, ready_file, wait_until_ready, write_ready_file

GATEWAY = ReadyGateway("http://127.0.0.1:4242/", 4242, None, 4, 99)


class FakeProcess:
    def __init__(self, returncode: int | None = None) -> None:
        self.returncode = returncode


def test_file_of_an_earlier_run_is_deleted_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "ready.json"
    path.write_text("{}")
    with ready_file(path):
        assert not path.exists()


def test_file_is_deleted_when_the_gateway_stops(tmp_path: Path) -> None:
    path = tmp_path / "ready.json"
    with ready_file(path):
        write_ready_file(path, GATEWAY)
        assert json.loads(path.read_text())["url"] == "http://127.0.0.1:4242/"
    assert list(tmp_path.iterdir()) == []


def test_unusable_path_is_reported_before_the_model_loads(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"), ready_file(tmp_path / "missing" / "ready.json"):
        pytest.fail("the folder does not exist")


def test_without_a_path_nothing_is_written() -> None:
    with ready_file(None):
        pass


async def test_reader_waits_for_the_file(tmp_path: Path) -> None:
    path = tmp_path / "ready.json"
    reading = asyncio.create_task(wait_until_ready(path, FakeProcess(), 10))  # type: ignore[arg-type]  # a fake
    await asyncio.sleep(0)
    write_ready_file(path, GATEWAY)
    assert await reading == GATEWAY


async def test_reader_reports_the_exit_of_the_gateway(tmp_path: Path) -> None:
    with pytest.raises(GatewayExited, match="status 1"):
        await wait_until_ready(tmp_path / "ready.json", FakeProcess(1), 10)  # type: ignore[arg-type]  # a fake
