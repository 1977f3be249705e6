from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from fakes.pipeline.tone_synthesizer import ToneSpeech, ToneSynthesizer
from fakes.virtual_time import run
from voxgate.benchmarks import fleet
from voxgate.benchmarks.fleet import (
    GatewayStartError,
    balanced,
    capacity_falls,
    divide_cores,
    fast_paths,
    gateways,
    haproxy_configuration,
    measured_capacity,
    on_cores,
    one_gateway,
)
from voxgate.gateway.ready_file import ReadyGateway
from voxgate.pipeline.capacity import Capacity, Stage, calibrate
from voxgate.pipeline.cuda.fast_paths import summary
from voxgate.pipeline.interface import SpeechRequest
from voxgate.pipeline.step_times import StepTimes

STARTS = """#!/bin/sh
# python -m voxgate.cli serve --port 0 --ready-file FILE ...
ready='"url": "http://127.0.0.1:4242/", "port": 4242, "haproxy_agent_port": 4243, "capacity": 4'
echo "{$ready, \\"pid\\": $$}" >$7.new
mv $7.new $7
exec sleep 30
"""
FAILS = "#!/bin/sh\necho voice missing >&2\nexit 1\n"


def replace_python(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has gateways run `script` instead."""
    path = folder / "python"
    path.write_text(script, encoding="utf-8")
    path.chmod(0o755)
    monkeypatch.setattr(fleet.sys, "executable", str(path))


async def test_gateway_runs_for_the_block_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_python(STARTS, tmp_path, monkeypatch)
    async with one_gateway([]) as gateway:
        assert gateway.url == "http://127.0.0.1:4242/"
        os.kill(gateway.pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(gateway.pid, 0)


async def test_gateway_that_does_not_start_is_reported_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_python(FAILS, tmp_path, monkeypatch)
    with pytest.raises(GatewayStartError, match="voice missing"):
        async with one_gateway([]):
            pytest.fail("the gateway is not ready")


async def test_when_one_gateway_fails_the_others_are_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = tmp_path / "pid"
    second_fails = STARTS.replace(
        "echo",
        f'[ "$CUDA_VISIBLE_DEVICES" = 1 ] && {{ until [ -s {pids} ]; do :; done; exit 1; }}\necho $$ >{pids}; echo',
    )
    replace_python(second_fails, tmp_path, monkeypatch)
    with pytest.raises(GatewayStartError):
        async with gateways(2, []):
            pytest.fail("the second gateway does not start")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pids.read_text()), 0)


async def test_missing_haproxy_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet.shutil, "which", lambda _: None)
    with pytest.raises(GatewayStartError, match="haproxy is not installed"):
        async with balanced([ReadyGateway("http://127.0.0.1:4242/", 4242, 4243, 4, 1)]):
            pytest.fail("there is no balancer")


def test_shipped_haproxy_configuration_is_rewritten_for_local_replicas() -> None:
    replicas = [
        ReadyGateway("http://127.0.0.1:4242/", 4242, 4243, 4, 1),
        ReadyGateway("http://127.0.0.1:4252/", 4252, 4253, 4, 1, admin_port=4254),
    ]
    text = haproxy_configuration(replicas, 5000, 5001)
    assert "bind 127.0.0.1:5000" in text
    assert "bind 127.0.0.1:5001" in text
    assert "    server g0 127.0.0.1:4242 port 4242 agent-port 4243\n" in text
    assert "    server g1 127.0.0.1:4252 port 4254 agent-port 4253\n" in text


def test_changed_haproxy_configuration_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "haproxy.cfg"
    other.write_text("bind :9999\n", encoding="utf-8")
    monkeypatch.setattr(fleet, "HAPROXY_CONFIGURATION", other)
    with pytest.raises(GatewayStartError, match="bind :8080"):
        haproxy_configuration([], 5000, 5001)


def test_cores_are_divided_only_where_there_are_enough() -> None:
    assert divide_cores(range(10), 2) == [range(5), range(5, 10)]
    assert divide_cores(range(10), 4) == [()] * 4


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports the cores of a process")
async def test_gateway_runs_on_its_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_python(STARTS, tmp_path, monkeypatch)
    one = min(os.sched_getaffinity(0))
    async with one_gateway([], cores=[one]) as gateway:
        assert os.sched_getaffinity(gateway.pid) == {one}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports the cores of a process")
def test_core_restriction_ends_with_the_block() -> None:
    before = os.sched_getaffinity(0)
    one = min(before)
    with on_cores([one]):
        assert os.sched_getaffinity(0) == {one}
    assert os.sched_getaffinity(0) == before


def test_report_names_the_fast_paths_of_the_gateway() -> None:
    line = summary({"own layers": "", "CUDA attention": "self-test differs from the reference"})
    assert (
        fast_paths(f"2026-11-27 INFO    voxgate: start took 9 s\n2026-11-27 INFO    voxgate: {line}\nready\n") == line
    )
    assert fast_paths("2026-11-27 INFO    voxgate: ready\n") is None


def test_report_has_the_last_falls_of_the_capacity(caplog: pytest.LogCaptureFixture) -> None:
    times = StepTimes()
    for batch, seconds in ((1, 0.003), (100, 0.02)):
        for _ in range(8):
            times.record(batch, seconds, 0.0)
    capacity = Capacity([Stage("talker", times, 1000)], 1000)
    with caplog.at_level("INFO"):
        for at_s in range(5):
            for _ in range(96):
                times.record(100, 0.04 + 0.01 * at_s, 1.0 + at_s)
            capacity.utterances(1.0 + at_s)
        fallen = capacity.utterances(5.0)
        for _ in range(300):
            times.record(100, 0.02, 9.0)
        assert capacity.utterances(9.0) > fallen, "it recovers, of which the report says nothing"
    log = "".join(f"2026-11-27 INFO    {record.name}: {record.getMessage()}\n" for record in caplog.records)
    falls = capacity_falls(log)
    assert len(falls) == 4
    assert falls[-1].startswith(f"capacity: {fallen} utterances at once instead of")
    assert "steps slower: with " in falls[-1]
    assert "the talker needs " in falls[-1]
    assert " ms for 100" in falls[-1]


def test_report_says_from_which_steps_the_capacity_at_the_start_follows(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        voice = ToneSynthesizer()
        await voice.start()

        def heard(max_frames: int) -> ToneSpeech:
            speech = voice.open(SpeechRequest("ada", max_frames=max_frames))
            speech.advance = lambda _: None  # type: ignore[method-assign]  # playback is not simulated
            return speech

        await calibrate(Capacity([Stage("talker", StepTimes(), 1)], 1), 1, heard)

    with caplog.at_level("INFO"):
        run(scene())
    log = "".join(f"2026-11-28 INFO    {record.name}: {record.getMessage()}\n" for record in caplog.records)
    (line,) = measured_capacity(log)
    assert line.startswith("capacity: 1 utterances at once, measured in ")
    assert "the talker needs" in line
    assert not measured_capacity("2026-11-28 INFO    voxgate: ready\n")
