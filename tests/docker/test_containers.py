"""Images in containers: scripts/test-images builds them and runs this file."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from fakes.waiting import DEADLINE_S
from voxgate.benchmarks.fleet import balancer, free_port
from voxgate.client import connect
from voxgate.client.events import Audio, Done, Started
from voxgate.gateway.ready_file import ReadyGateway

from .checkers import ROOT, tool

IMAGES = os.environ.get("VOXGATE_TEST_IMAGES", "").split()
START_S = 300.0
"""Longest start of the demo voice in a container on a busy machine."""
STOP_S = 60
CONFINED = ("--read-only", "--tmpfs=/tmp", "--shm-size=1g", "--cap-drop=all", "--security-opt=no-new-privileges")
LIMITS = ("--runtime=runc", "--network=host", "--ulimit=nofile=20000:20000", "--ulimit=nproc=30000:30000")
"""podman with these works inside a virtual machine or a container too."""
TEXT = (
    "The gateway runs in a container of its own, as a user without rights, and cannot write to its root. "
    "What it says now travels through its port while it is spoken, a little ahead of the listener. "
    "Ten seconds of speech are enough to show that the whole way from a word to its sound is there. "
)

pytestmark = pytest.mark.skipif(not IMAGES, reason="scripts/test-images builds the images")


def podman(*arguments: str, check: bool = True, timeout: float = START_S) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run([tool("podman"), *arguments], capture_output=True, text=True, timeout=timeout, check=False)
    assert not check or ended.returncode == 0, ended.stdout + ended.stderr
    return ended


def in_image(kind: str, program: str, *arguments: str, check: bool = True) -> str:
    command = ["run", "--rm", *LIMITS, *CONFINED, f"--entrypoint={program}", f"localhost/voxgate:{kind}", *arguments]
    return podman(*command, check=check).stdout


@dataclass(frozen=True)
class Container:
    name: str
    ready: ReadyGateway

    def exec(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return podman("exec", self.name, *command, check=check)

    def state(self) -> dict[str, object]:
        return dict(json.loads(podman("inspect", "--format={{json .State}}", self.name).stdout))


@contextmanager
def started(**environment: str) -> Iterator[str]:
    """A confined container of the CPU image; yields its name."""
    settings = [f"--env={name}={value}" for name, value in environment.items()]
    name = podman("run", "--detach", *LIMITS, *CONFINED, *settings, "localhost/voxgate:cpu").stdout.strip()
    try:
        yield name
    finally:
        print(podman("logs", "--tail=30", name, check=False).stderr)
        podman("rm", "--force", "--volumes", "--time=5", name)


@asynccontextmanager
async def gateway(admin_port: int = 8002) -> AsyncIterator[Container]:
    """A gateway that speaks, at ports of this machine. The image's health check asks 8002."""
    port, agent_port = free_port(), free_port()
    settings = {"HOST": "127.0.0.1", "PORT": port, "HAPROXY_AGENT_PORT": agent_port, "ADMIN_PORT": admin_port}
    with started(**{f"VOXGATE_{name}": str(value) for name, value in settings.items()}) as name:
        async with asyncio.timeout(START_S):
            while not await asyncio.to_thread(_is_ready, admin_port):
                await asyncio.sleep(0.5)
        url = f"http://127.0.0.1:{port}/"
        yield Container(name, ReadyGateway(url, port, agent_port, 1, 0, admin_port))


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


async def speak(url: str, speaking: asyncio.Event | None = None) -> float:
    """Seconds of speech received for `TEXT`, which ended by itself with nothing missing."""
    samples = rate = 0
    async with connect(url) as session, session.utterance() as utterance:
        await utterance.send(TEXT)
        await utterance.end()
        async for event in utterance.events():
            match event:
                case Started():
                    rate = event.format.sample_rate
                case Audio():
                    samples += event.samples
                    if speaking is not None:
                        speaking.set()
                case Done():
                    assert event.samples == samples
                    return samples / rate
    raise AssertionError("the utterance did not end")


@pytest.mark.parametrize("kind", IMAGES)
def test_image_holds_pinned_packages_only(kind: str) -> None:
    script = "import importlib.metadata as m; print(*(f'{d.name}=={d.version}' for d in m.distributions()))"
    installed = {
        re.sub(r"[-_.]+", "-", name).lower(): version
        for name, _, version in (each.partition("==") for each in in_image(kind, "python", "-c", script).split())
    }
    pinned: dict[str, str] = {}
    for path in (ROOT / "requirements/build.txt", *(ROOT / "requirements").glob(f"{kind}*.txt")):
        pinned |= dict(re.findall(r"^([\w-]+)==([^ \\]+)", path.read_text("utf-8"), re.MULTILINE))
    own = {"voxgate", "voxgate-demo-voice"}
    assert own <= set(installed)
    assert {name: version for name, version in installed.items() if name not in own}.items() <= pinned.items()


def test_doctor_finds_the_cpu_image_ready() -> None:
    report = in_image("cpu", "voxgate", "doctor")
    assert "✗" not in report
    assert "Ready to serve." in report


@pytest.mark.skipif("cuda" not in IMAGES, reason="scripts/test-images --cuda builds it")
def test_doctor_finds_everything_but_a_gpu_in_the_cuda_image() -> None:
    report = in_image("cuda", "voxgate", "doctor", check=False)
    assert "✓ vllm 0.33.0 on torch 2.14.0" in report
    assert "✓ C compiler: /usr/bin/gcc" in report
    assert "✓ /usr/include/python3.11/Python.h" in report
    assert "✗" not in report


async def test_container_speaks_confined_and_drains() -> None:
    async with gateway() as container:
        assert container.exec("id", "-u").stdout.strip() == "10001"
        for place in ("/opt/voxgate", "/etc", "/"):
            assert "Read-only file system" in container.exec("touch", f"{place}/x", check=False).stderr
        podman("healthcheck", "run", container.name)
        assert await speak(container.ready.url) >= 10

        speaking = asyncio.Event()
        spoken = asyncio.create_task(speak(container.ready.url, speaking))
        async with asyncio.timeout(DEADLINE_S):
            await speaking.wait()
        await asyncio.to_thread(podman, "stop", f"--time={STOP_S}", container.name)
        assert await spoken >= 10, "SIGTERM cut current speech"
        assert container.state()["ExitCode"] == 0


async def test_two_containers_serve_behind_haproxy(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        containers = [await stack.enter_async_context(gateway(free_port())) for _ in range(2)]
        replicas = [each.ready for each in containers]
        front = await stack.enter_async_context(balancer(tool("haproxy"), replicas, tmp_path))
        assert all(seconds >= 10 for seconds in await asyncio.gather(*(speak(front.url) for _ in range(2))))
        served = [int(server["stot"]) for server in (await front.servers()).values()]
        assert served == [1, 1]
