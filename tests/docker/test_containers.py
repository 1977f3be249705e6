"""Images in containers: scripts/test-images builds them and runs this file."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import subprocess
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from fakes.waiting import DEADLINE_S
from voxgate.benchmarks.fleet import free_port
from voxgate.client import Session, connect
from voxgate.client.events import Audio, Done, Started

from .checkers import DOCKER, ROOT, tool

HAPROXY_IMAGE = os.environ.get("VOXGATE_TEST_HAPROXY_IMAGE", "")
"""Stands for the one that Compose names, where that cannot be pulled."""
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
    url: str

    def exec(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return podman("exec", self.name, *command, check=check)

    def exit_code(self) -> int:
        return int(podman("inspect", "--format={{.State.ExitCode}}", self.name).stdout)


@asynccontextmanager
async def gateway() -> AsyncIterator[Container]:
    """A confined container of the CPU image that speaks, at a port of this machine."""
    port = free_port()
    settings = ("--env=VOXGATE_HOST=127.0.0.1", f"--env=VOXGATE_PORT={port}")
    name = podman("run", "--detach", *LIMITS, *CONFINED, *settings, "localhost/voxgate:cpu").stdout.strip()
    try:
        async with asyncio.timeout(START_S):
            while not await asyncio.to_thread(_is_ready, port):
                await asyncio.sleep(0.5)
        yield Container(name, f"http://127.0.0.1:{port}")
    finally:
        print(podman("logs", "--tail=30", name, check=False).stderr)
        podman("rm", "--force", "--volumes", "--time=5", name)


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


async def speak(session: Session, speaking: asyncio.Event | None = None) -> float:
    """Seconds of speech received for `TEXT`, which ended by itself with nothing missing."""
    samples = rate = 0
    async with session.utterance() as utterance:
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
        async with connect(container.url) as session:
            assert await speak(session) >= 10
            speaking = asyncio.Event()
            spoken = asyncio.create_task(speak(session, speaking))
            async with asyncio.timeout(DEADLINE_S):
                await speaking.wait()
            await asyncio.to_thread(podman, "stop", f"--time={STOP_S}", container.name)
            assert await spoken >= 10, "SIGTERM cut current speech"
        assert container.exit_code() == 0


async def test_compose_serves_two_gateways_through_haproxy(tmp_path: Path) -> None:
    url = "http://127.0.0.1:8080"
    with compose(tmp_path) as logs:
        async with asyncio.timeout(START_S):
            while len(set(re.findall(r"Server gateways/(\w+) is UP, ", logs("voxgate_haproxy_1")))) < 2:
                await asyncio.sleep(0.5)
        async with connect(url) as one, connect(url) as other:
            # One after the other: a busy machine has room for one at a time.
            assert await speak(one) >= 10
            assert await speak(other) >= 10
        sessions: list[str] = []
        async with asyncio.timeout(DEADLINE_S):
            while len(sessions) < 2:
                log = await asyncio.to_thread(logs, "voxgate_haproxy_1")
                sessions = re.findall(r" gateways/(\w+) .* 101 .* GET /v1/speech ", log)
        assert len(set(sessions)) == 2
        with pytest.raises(urllib.error.HTTPError, match="404"):
            await asyncio.to_thread(urllib.request.urlopen, f"{url}/%6detrics")


@contextmanager
def compose(folder: Path) -> Iterator[Callable[[str], str]]:
    """docker/compose.yaml with the images built here; yields a function that returns the log of a container."""
    files = int(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    services: dict[str, object] = {"gateway": {"image": "localhost/voxgate:cpu"}}
    if HAPROXY_IMAGE:
        services["haproxy"] = {"image": HAPROXY_IMAGE, "ulimits": {"nofile": min(files, 100_000)}}
    override, configuration = folder / "override.yaml", folder / "containers.conf"
    override.write_text(yaml.safe_dump({"services": services}), encoding="utf-8")
    # Its name server answers with the address of every gateway.
    configuration.write_text('[network]\nnetwork_backend = "netavark"\n', encoding="utf-8")
    environment = {**os.environ, "CONTAINERS_CONF": str(configuration)}
    limits = " ".join(each for each in LIMITS if "network" not in each)
    command = [tool("podman-compose"), f"--podman-run-args={limits}", "-f", DOCKER / "compose.yaml", "-f", override]

    def run(*words: str | Path, check: bool = True) -> str:
        ended = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=START_S, check=False)
        assert not check or ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr

    up = ("up", "--no-build", "--detach", "--scale", "gateway=2", "gateway", "haproxy")
    podman_path = tool("podman")
    try:
        run(*command, *up)
        yield lambda name: run(podman_path, "logs", name)
    finally:
        print(run(podman_path, "logs", "--tail=30", "voxgate_haproxy_1", check=False))
        # podman-compose does not stop containers that --scale added.
        for kind in (
            ("pod", "rm", "pod_voxgate"),
            ("network", "rm", "voxgate_default"),
            ("volume", "rm", "voxgate_voices"),
        ):
            run(podman_path, *kind, "--force", check=False)
