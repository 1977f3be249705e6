from __future__ import annotations

import asyncio
import logging
import os
import re
import resource
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from fakes.waiting import DEADLINE_S
from voxgate.cli.main import main
from voxgate.cli.serve import (
    MAX_AUTO_WORKERS,
    choose_workers,
    page_address,
    raise_file_descriptor_limit,
    report_exposure,
    report_progress,
    synthesizer_options,
)
from voxgate.cli.settings_flags import gateway_variables
from voxgate.gateway.settings import Settings
from voxgate.pipeline.interface import EngineState

OPENED = """
import os
from voxgate.cli.serve import open_standard_descriptors

open_standard_descriptors()
null = os.stat(os.devnull).st_rdev
raise SystemExit(7 if all(os.fstat(fd).st_rdev == null and os.get_inheritable(fd) for fd in range(3)) else 1)
"""
INFINITY = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("limits", "then", "warned"),
    [
        ((1024, 4096), (2512, 4096), False),
        ((1024, INFINITY), (2512, INFINITY), False),
        ((1024, 2000), (2000, 2000), True),
        ((4096, 4096), (4096, 4096), False),
        ((INFINITY, INFINITY), (INFINITY, INFINITY), False),
    ],
)
def test_descriptor_limit_is_raised_as_far_as_allowed(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    limits: tuple[int, int],
    then: tuple[int, int],
    warned: bool,
) -> None:
    now = [limits]
    monkeypatch.setattr(resource, "getrlimit", lambda _: now[0])
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: now.__setitem__(0, limits))
    with caplog.at_level(logging.WARNING):
        raise_file_descriptor_limit(1000)
    assert now[0] == then
    assert ("ulimit -n" in caplog.text) is warned


SCRIPTS = Path(__file__).parents[2] / "scripts"


def test_closed_standard_descriptors_are_opened() -> None:
    shell = ["sh", "-c", '"$0" -c "$1" <&- >&- 2>&-', sys.executable, OPENED]
    assert subprocess.run(shell, timeout=DEADLINE_S).returncode == 7


class Loading:
    """A model whose state is STARTING for `looks` reads, then `end`."""

    capacity = 4

    def __init__(self, looks: int, end: EngineState) -> None:
        self._looks = looks
        self._end = end

    @property
    def state(self) -> EngineState:
        self._looks -= 1
        return EngineState.STARTING if self._looks > 0 else self._end


def test_public_address_without_keys_is_logged_once(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    report_exposure(Settings(host="0.0.0.0"))
    report_exposure(Settings())
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "0.0.0.0" in record.getMessage()
    assert capsys.readouterr().err == "", "the log goes there"


async def test_progress_ends_with_the_address(capsys: pytest.CaptureFixture[str]) -> None:
    voice = Loading(2, EngineState.READY)
    await report_progress(voice, "demo", "http://h:1/", interval_s=0)
    first, loading, ready = capsys.readouterr().err.splitlines()
    assert "loading the voice 'demo'" in first
    assert "still loading" in loading
    assert ready.endswith("4 utterances at once: open http://h:1/")


async def test_progress_says_what_the_start_does(capsys: pytest.CaptureFixture[str]) -> None:
    voice = Loading(2, EngineState.READY)
    await report_progress(voice, "demo", "http://h:1/", interval_s=0, progress=lambda: "warming up, about 3 s left")
    _, loading, _ = capsys.readouterr().err.splitlines()
    assert loading == "voxgate: warming up, about 3 s left (0 s)"


async def test_failed_engine_is_not_reported_as_ready(capsys: pytest.CaptureFixture[str]) -> None:
    await report_progress(Loading(1, EngineState.DEAD), "demo", "http://h:1/")
    assert "ready" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000/"),
        ("0.0.0.0", "http://127.0.0.1:8000/"),
        ("::", "http://[::1]:8000/"),
    ],
)
def test_page_address_can_be_opened_in_a_browser(host: str, address: str) -> None:
    assert page_address(host, 8000) == address
    assert page_address(host, 8000, tls=True) == address.replace("http:", "https:")


def test_variables_of_scripts_and_tests_are_not_settings() -> None:
    scripts = "".join(path.read_text("utf-8") for path in SCRIPTS.iterdir())
    names = set(re.findall(r"\bVOXGATE_[A-Z_]+", scripts))
    assert {"VOXGATE_VENV", "VOXGATE_ACCELERATOR"} < names
    assert gateway_variables(dict.fromkeys([*names, "VOXGATE_PORT"], "1")) == {"VOXGATE_PORT": "1"}


def test_invalid_setting_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("VOXGATE_VENV", "/some/venv")  # a variable of the scripts
    assert main(["serve", "--port", "high"]) == 2
    assert "port in the command line" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "cores", "workers"),
    [
        (Settings(), 32, 1),
        (Settings(workers=3), 32, 3),
        (Settings(workers="auto", device="cpu"), 32, 1),
        (Settings(workers="auto", device="cuda"), 8, 6),
        (Settings(workers="auto", device="cuda"), 2, 1),
        (Settings(workers="auto", device="cuda"), 1, 1),
        (Settings(workers="auto", device="cuda"), 128, MAX_AUTO_WORKERS),
    ],
)
def test_workers_default_to_what_suits_the_machine(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, cores: int, workers: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    assert choose_workers(settings) == workers
    assert synthesizer_options(settings).attached_processes == (workers if workers > 1 else 0)


@pytest.mark.parametrize(("value", "fp8"), [("auto", False), ("fp8", True)])
def test_type_of_the_cache_reaches_the_engine(value: str, fp8: bool) -> None:
    settings = Settings.model_validate({"kv_cache_dtype": value})
    assert synthesizer_options(settings).gpu.fp8_cache is fp8


@pytest.mark.parametrize("flag", ["--checkpoint", "--keys-file", "--tls-certificate", "--token-secret-file"])
async def test_missing_file_is_reported_in_one_line(flag: str, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "voxgate.cli", "serve", "--port", "0", flag, missing, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(DEADLINE_S):
        (line,) = (await process.communicate())[1].decode().splitlines()
    assert line.startswith("voxgate serve: ")
    assert missing in line
    assert process.returncode == (1 if flag == "--checkpoint" else 2)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_during_the_download_ends_the_command(tmp_path: Path, number: signal.Signals) -> None:
    """The hub accepts connections and does not answer. A hangup before is ignored, as no keys are to be reloaded."""
    asked = asyncio.Event()
    hub = await asyncio.start_server(lambda *_: asked.set(), "127.0.0.1", 0)
    environment = os.environ | {
        "HF_ENDPOINT": f"http://127.0.0.1:{hub.sockets[0].getsockname()[1]}",
        "HF_HOME": str(tmp_path / "cache"),
        "NO_PROXY": "127.0.0.1",
    }
    command = [sys.executable, "-m", "voxgate.cli", "serve", "--port", "0", "--checkpoint", "someone/voice"]
    command += ["--ready-file", str(tmp_path / "ready.json")]
    process = await asyncio.create_subprocess_exec(*command, env=environment, stderr=PIPE)
    try:
        async with asyncio.timeout(DEADLINE_S):
            await asked.wait()
            process.send_signal(signal.SIGHUP)
            process.send_signal(number)
            _, errors = await process.communicate()
        assert process.returncode == 0
        assert b"Traceback" not in errors
        assert [name for name in os.listdir(tmp_path) if "ready" in name] == []  # noqa: PTH208 - a list, not a wait
    finally:
        if process.returncode is None:
            process.kill()
        hub.close()
