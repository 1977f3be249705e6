"""The whole command, with its own processes, against a gateway that hums."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from fakes.humming_gateway import FakeGateway, fake_gateway
from voxgate.cli.main import main

SHORT = ["--sentences", "1", "--words-per-s", "0", "--seconds", "0.1"]


def bench(gateway: FakeGateway, *flags: str) -> int:
    return main(["bench", "ws", "--url", gateway.url, *SHORT, *flags])


async def test_a_ramp_over_two_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, page = tmp_path / "lines", tmp_path / "page.html"
    flags = ("--streams", "2,3", "--processes", "2", "--jsonl", str(lines), "--html", str(page))
    async with fake_gateway() as gateway:
        assert await asyncio.to_thread(bench, gateway, *flags) == 0
    records = [json.loads(line) for line in lines.read_text("utf-8").splitlines()]
    steps = [record for record in records if "verdict" in record]
    assert [(step["step"], step["verdict"]) for step in steps] == [("2 streams", None), ("3 streams", None)]
    assert {record["stream"] for record in records if record["step"] == "3 streams" and "stream" in record} == {0, 1, 2}
    assert page.read_text("utf-8").startswith("<!doctype html>")
    assert "3 streams" in capsys.readouterr().out


async def test_finds_what_is_carried_and_fails_when_nothing_is() -> None:
    async with fake_gateway() as gateway:
        assert await asyncio.to_thread(bench, gateway, "--find", "--most", "1") == 0
    assert await asyncio.to_thread(main, ["bench", "ws", "--url", gateway.url, *SHORT, "--find", "--most", "1"]) == 1
