"""A fleet of a measurement's own: its gateways come up together, or none is left."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from voxgate.benchmarks import fleet
from voxgate.benchmarks.fleet import (
    GatewayProcess,
    GatewayStartError,
    balanced,
    gateways,
    on_cores,
    one_gateway,
    parts_of,
)

STARTS = """#!/bin/sh
echo "ready after 1.0 s for 4 utterances at once: open http://127.0.0.1:4242/" >&2
exec sleep 30
"""
FAILS = "#!/bin/sh\necho no voice there >&2\nexit 1\n"


def python_that(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have gateways be this script instead."""
    path = folder / "python"
    path.write_text(script, encoding="utf-8")
    path.chmod(0o755)
    monkeypatch.setattr(fleet.sys, "executable", str(path))


async def test_a_gateway_is_there_for_the_block_and_gone_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python_that(STARTS, tmp_path, monkeypatch)
    async with one_gateway([]) as served:
        assert served.url == "http://127.0.0.1:4242/"
        (pid,) = served.pids
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_one_that_does_not_start_tells_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python_that(FAILS, tmp_path, monkeypatch)
    with pytest.raises(GatewayStartError, match="no voice there"):
        async with one_gateway([]):
            pytest.fail("it is not ready")


async def test_gateways_come_up_together_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first_is_there = "until [ -s PIDS ]; do :; done"
    second_fails = STARTS.replace(
        "echo", f'[ "$CUDA_VISIBLE_DEVICES" = 1 ] && {{ {first_is_there}; exit 1; }}\necho $$ > PIDS; echo'
    )
    python_that(second_fails.replace("PIDS", str(tmp_path / "pid")), tmp_path, monkeypatch)
    with pytest.raises(GatewayStartError):
        async with gateways(2, []):
            pytest.fail("one of them is not there")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_without_haproxy_there_is_no_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet.shutil, "which", lambda _: None)
    with pytest.raises(GatewayStartError, match="haproxy"):
        async with balanced([GatewayProcess(1, "http://127.0.0.1:4242/", 4243)]):
            pytest.fail("nothing stands in front of it")


def test_gateways_share_the_cores_where_there_are_enough() -> None:
    assert parts_of(range(10), 2) == [range(5), range(5, 10)]
    assert parts_of(range(10), 4) == [()] * 4, "each is better off with all of them"


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells on which cores a process runs")
async def test_a_gateway_runs_on_its_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python_that(STARTS, tmp_path, monkeypatch)
    one = min(os.sched_getaffinity(0))
    async with one_gateway([], cores=[one]) as served:
        assert os.sched_getaffinity(served.pids[0]) == {one}


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells on which cores a process runs")
def test_cores_are_given_back() -> None:
    before = os.sched_getaffinity(0)
    one = min(before)
    with on_cores([one]):
        assert os.sched_getaffinity(0) == {one}
    assert os.sched_getaffinity(0) == before
