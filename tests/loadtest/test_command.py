from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

import pytest
from fakes.gateway.protocol_server import FakeGateway, fake_gateway, respond
from voxgate.cli.main import main
from voxgate.loadtest.command import CapacitySearch


def search_capacity(passes: Callable[[int], bool], first: int = 1, limit: int = 1024) -> tuple[int, list[int]]:
    search, tried = CapacitySearch(first, limit), []
    while (streams := search.next) is not None:
        tried.append(streams)
        assert len(tried) < 40
        search.record(passes(streams))
    return search.best, tried


@pytest.mark.parametrize("capacity", [1, 2, 3, 7, 16, 19])
def test_search_finds_the_largest_passing_number(capacity: int) -> None:
    best, tried = search_capacity(lambda streams: streams <= capacity)
    assert best == capacity
    assert tried[-1] == capacity, "the result is not confirmed"
    assert len(tried) <= 12


def test_large_numbers_are_found_within_five_percent() -> None:
    best, tried = search_capacity(lambda streams: streams <= 700)
    assert 665 <= best <= 700
    assert len(tried) <= 18


def test_search_ends_at_zero_when_nothing_passes() -> None:
    assert search_capacity(lambda _: False) == (0, [1])


def test_search_stops_at_the_limit() -> None:
    assert search_capacity(lambda _: True, limit=6) == (6, [1, 2, 4, 6, 6])


def test_result_is_confirmed_by_repetition() -> None:
    seen: list[int] = []

    def passes(streams: int) -> bool:
        seen.append(streams)
        return streams <= 8 if seen.count(streams) == 1 else streams <= 6

    best, tried = search_capacity(passes)
    assert best == 6
    assert tried.count(8) == 2


SHORT = ["--sentences", "1", "--words-per-s", "0", "--seconds", "0.1"]
"""On a busy machine even this load may violate an objective: only the agreement of status and steps is tested."""


def bench(gateway: FakeGateway, *flags: str) -> int:
    return main(["bench", "ws", "--url", gateway.url, *SHORT, *flags])


async def test_ramp_runs_in_two_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, page = tmp_path / "lines", tmp_path / "page.html"
    flags = ("--streams", "2,3", "--processes", "2", "--jsonl", str(lines), "--html", str(page))
    async with fake_gateway() as gateway:
        status = await asyncio.to_thread(bench, gateway, *flags)
    records = [json.loads(line) for line in lines.read_text("utf-8").splitlines()]
    steps = [record for record in records if "violation" in record]
    assert [(step["step"], set(step["outcomes"])) for step in steps] == [
        ("2 streams", {"done"}),
        ("3 streams", {"done"}),
    ]
    assert status == any(step["violation"] for step in steps)
    assert {record["stream"] for record in records if record["step"] == "3 streams" and "stream" in record} == {0, 1, 2}
    assert page.read_text("utf-8").startswith("<!doctype html>")
    assert "3 streams" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--streams", "0"], "must be numbers above 0"),
        (["--rate", "2,x"], "must be a number, got 'x'"),
        (["--slow", "2"], "must be between 0 and 1"),
        (["--streams", "2", "--find"], "not allowed with"),
        (["--processes", "0"], "must be a whole number above 0"),
    ],
)
def test_wrong_usage_is_explained(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["bench", "ws", *flags])
    assert exit.value.code == 2
    assert message in capsys.readouterr().err


async def test_open_loop_rate_is_measured(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    async with fake_gateway() as gateway:
        status = await asyncio.to_thread(bench, gateway, "--rate", "50", "--jsonl", str(lines))
    (step,) = [record for line in lines.read_text("utf-8").splitlines() if "violation" in (record := json.loads(line))]
    assert (step["load"], step["outcomes"]) == ("50/s", {"done": step["utterances"]})
    assert status == (step["violation"] is not None)


async def test_failed_search_exits_with_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    async with fake_gateway() as gateway:
        status = await asyncio.to_thread(bench, gateway, "--find", "--max-streams", "1")
        assert f"{1 - status} streams without an underrun" in capsys.readouterr().out
        gateway.refuse = lambda: respond(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "at_capacity"})
        assert await asyncio.to_thread(bench, gateway, "--find", "--max-streams", "1") == 1
        assert "0 streams without an underrun" in capsys.readouterr().out


def test_unreachable_gateway_is_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "ws", "--url", "127.0.0.1:9", *SHORT]) == 1
    output = capsys.readouterr()
    assert (output.out, output.err.count("\n")) == ("", 1)
    assert "no server answers at 127.0.0.1:9 ([Errno 111] Connect call failed" in output.err
