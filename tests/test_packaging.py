"""The wheel: its content, and that a client needs only `websockets` in addition."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import websockets
from fakes.waiting import DEADLINE_S

ROOT = Path(__file__).parents[1]
CLIENT_FILES = (
    "voxgate.js",
    "voxgate_audio.js",
    "voxgate_errors.js",
    "voxgate_restore.js",
    "voxgate_socket.js",
    "voxgate_utterance.js",
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
FOLDERS = PROJECT["tool"]["setuptools"]["package-dir"].values()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: setuptools leaves files of earlier builds in the tree."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, source]
    subprocess.run(command, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and `websockets` alone."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    package = Path(websockets.__file__).parent
    shutil.copytree(package, folder / "websockets")
    return folder


def run(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Python without site-packages."""
    environment = os.environ | {"PYTHONPATH": str(installed)}
    command = [sys.executable, "-S", *arguments]
    return subprocess.run(
        command, env=environment, cwd=installed, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


def test_wheel_holds_every_package_but_no_demo_voice_and_no_benchmarks(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    packages = {name.split("/")[1] for name in names if name.startswith("voxgate/")}
    assert packages == set(FOLDERS)
    assert {f"voxgate/{folder}/py.typed" for folder in FOLDERS} <= set(names)
    for folder in FOLDERS:
        sources = {f"voxgate/{path.relative_to(ROOT)}" for path in (ROOT / folder).rglob("*.py")}
        assert sources <= set(names), "a folder is missing from the list of packages"
    assert {f"voxgate/web/client/{name}" for name in CLIENT_FILES} <= set(names)
    assert wheel.stat().st_size < 2_000_000


def test_client_needs_websockets_only(installed: Path) -> None:
    ended = run(installed, "-c", "import voxgate.client; print(voxgate.client.connect.__name__)")
    assert (ended.stdout, ended.stderr) == ("connect\n", "")


@pytest.mark.parametrize("command", ["say", "voices", "doctor"])
def test_commands_of_the_client_need_websockets_only(installed: Path, command: str) -> None:
    ended = run(installed, "-m", "voxgate.cli", command, "--help")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(f"usage: voxgate {command}")


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [(["serve"], "cpu"), (["keys", "new", "ada"], "server"), (["voices", "list"], "cpu"), (["bench", "ws"], "server")],
)
def test_other_commands_name_the_extra_to_install(installed: Path, arguments: list[str], extra: str) -> None:
    ended = run(installed, "-m", "voxgate.cli", *arguments)
    assert ended.returncode == 1
    assert f"is not installed: pip install 'PATH_OF_YOUR_CLONE[{extra}]'" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_benchmarks_of_a_checkout_are_not_offered(installed: Path) -> None:
    ended = run(installed, "-m", "voxgate.cli", "bench", "--help")
    assert "  ws " in ended.stdout
    assert "  gpu " not in ended.stdout
