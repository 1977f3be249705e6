"""What a confined process can still do. Each test confines a process of its own, because nothing undoes it."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.waiting import DEADLINE_S
from voxgate.pipeline.cloning.confinement import DESCRIPTORS, OOM_SCORE
from voxgate.pipeline.cloning.service import worker_environment

BEGIN = """
import ctypes, errno, logging, mmap, os, resource, socket, subprocess, sys
from pathlib import Path
from voxgate.pipeline.cloning import confinement

def refused(what):
    try:
        what()
    except OSError as error:
        return error.errno in (errno.EPERM, errno.EACCES)
    return False
"""
CONFINE = BEGIN + "confinement.confine(Path(sys.argv[1]))\n"

LANDLOCK = ctypes.CDLL(None).syscall(444, None, 0, 1)
"""Version of Landlock that this kernel has, below 1 for none."""
SIGNALS_SINCE = 6

landlock = pytest.mark.skipif(LANDLOCK < 1, reason="this kernel has no Landlock")
seccomp = pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="no filter for this machine")


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `code` with `folder` as its argument."""
    command = [sys.executable, "-P", "-c", code, str(folder)]
    return subprocess.run(
        command, env=worker_environment(), capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


def holds(condition: str, folder: Path) -> None:
    """Check that `condition` is true in a process that is confined to `folder`."""
    done = run(f"{CONFINE}print({condition})", folder)
    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder with a file, and a link to one elsewhere, as in a cache of checkpoints."""
    folder, elsewhere = tmp_path / "model", tmp_path / "blobs"
    folder.mkdir()
    elsewhere.mkdir()
    (folder / "config.json").write_text("{}")
    (elsewhere / "weights").write_text("weights")
    (elsewhere / "another").write_text("another model")
    (folder / "weights").symlink_to(elsewhere / "weights")
    return folder


@landlock
def test_model_can_be_read(model: Path) -> None:
    holds('(Path(sys.argv[1]) / "config.json").read_text() == "{}"', model)
    holds('(Path(sys.argv[1]) / "weights").read_text() == "weights"', model)


@landlock
@pytest.mark.parametrize(
    "what",
    [
        'open("/etc/passwd")',
        'open(f"/proc/{os.getppid()}/environ")',
        'open(sys.argv[1] + "/../blobs/another")',
        'open(sys.argv[1] + "/new", "w")',
        'open(sys.argv[1] + "/config.json", "a")',
        'open("/tmp/new", "w")',
        'os.unlink(sys.argv[1] + "/config.json")',
        'os.listdir("/")',
    ],
)
def test_other_files_cannot_be_opened(model: Path, what: str) -> None:
    holds(f"refused(lambda: {what})", model)


@landlock
@seccomp
@pytest.mark.parametrize(
    "what",
    [
        "socket.socket()",
        "socket.socket(socket.AF_UNIX)",
        "socket.socket(type=socket.SOCK_DGRAM)",
        'subprocess.run([sys.executable, "-c", ""])',
        pytest.param(
            "os.kill(os.getppid(), 0)",
            marks=pytest.mark.skipif(LANDLOCK < SIGNALS_SINCE, reason="Landlock does not restrict signals"),
        ),
    ],
)
def test_network_and_other_processes_are_out_of_reach(model: Path, what: str) -> None:
    holds(f"refused(lambda: {what})", model)


@seccomp
def test_memory_of_other_processes_cannot_be_read(model: Path) -> None:
    trace = (
        "ctypes.CDLL(None, use_errno=True).ptrace(16, os.getppid(), 0, 0) == -1 and ctypes.get_errno() == errno.EPERM"
    )
    holds(trace, model)


def test_limits_hold(model: Path) -> None:
    holds(f"resource.getrlimit(resource.RLIMIT_NOFILE) == ({DESCRIPTORS}, {DESCRIPTORS})", model)
    holds("resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)", model)
    holds("resource.getrlimit(resource.RLIMIT_CPU)[1] == confinement.CPU_S", model)
    assert run(f'{CONFINE}print(open("/proc/self/oom_score_adj").read())', model).stdout.strip() == str(OOM_SCORE)


def test_memory_is_limited(model: Path) -> None:
    done = run(f"{CONFINE}mmap.mmap(-1, confinement.MEMORY_BYTES, mmap.MAP_PRIVATE)", model)
    assert "Cannot allocate memory" in done.stderr


def test_confinement_holds_for_libraries_of_the_worker(model: Path) -> None:
    holds('__import__("voxgate.pipeline.cloning.job") is not None', model)


def test_missing_protection_is_one_log_line_each(model: Path) -> None:
    code = """
logging.basicConfig(format="%(message)s")
def missing(*_):
    raise OSError(errno.ENOSYS, "Function not implemented")
confinement._restrict_files = confinement._filter_system_calls = missing
confinement.confine(Path(sys.argv[1]))
print("confined")
"""
    done = run(BEGIN + code, model)
    assert done.stdout == "confined\n"
    assert done.stderr.splitlines() == [
        "untrusted recordings are read with access to files: no Landlock (Function not implemented)",
        "untrusted recordings are read with access to the network: no seccomp (Function not implemented)",
    ]


def test_environment_of_worker_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOXGATE_KEYS", "alice=sha256:00")
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    assert worker_environment() == {
        "PYTHONPATH": "somewhere",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        **{name: os.environ[name] for name in ("LD_LIBRARY_PATH", "LANG", "LC_ALL") if name in os.environ},
    }
