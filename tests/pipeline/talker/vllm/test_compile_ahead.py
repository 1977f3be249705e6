"""Compiling ahead as the engine's start sees it: for which engines, and that nothing depends on it."""

from __future__ import annotations

import logging
from dataclasses import replace
from subprocess import CompletedProcess
from typing import Any

import pytest
import torch
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint
from voxgate.pipeline.ipc.codec_wire import CodecWorkerOptions
from voxgate.pipeline.ipc.slot_tables import TableShape
from voxgate.pipeline.talker.vllm import compile_ahead
from voxgate.pipeline.talker.vllm.compile_ahead import EngineKernels, compile_fallback
from voxgate.pipeline.talker.vllm.config import EngineConfig, EngineOptions, GpuOptions

SHAPE = TableShape(slots=16, prefix=24, text=6, frames=10, groups=16, hidden=320, prefilled_prompts=2)
CODEC = CodecWorkerOptions("/voice/codec", 32, "stateful", 72, 1, 32, 256, -1, 7, "cuda", "voxgate-codec-1")
"""Codec of an engine of 16 slots."""


def config(**options: object) -> EngineConfig:
    chosen = EngineOptions(**{"slots": 16, "device": "cuda", "codec": CODEC.to_json()} | options)  # type: ignore[arg-type]  # by name
    return EngineConfig("/voice", chosen, SHAPE, "/tables", ("reports",), "wakeup", owner_pid=7)


def test_kernels_follow_from_the_sizes_of_the_engine() -> None:
    kernels = EngineKernels.of(config())
    assert kernels == EngineKernels("/voice", SHAPE, codec_slots=32, codec_rows=32, codec_frames=256)
    assert EngineKernels.from_json(kernels.to_json()) == kernels
    assert EngineKernels.of(config(gpu=GpuOptions(fp8_cache=True))) == replace(kernels, fp8_cache=True)


@pytest.mark.parametrize(
    "options",
    [
        {"codec": None},
        {"dtype": "float32"},
        {"gpu": GpuOptions(voxgate_kernels=False)},
        {"codec": replace(CODEC, codec_mode="overlap").to_json()},
    ],
)
def test_engines_with_other_kernels_compile_at_the_first_use(options: dict[str, object]) -> None:
    assert EngineKernels.of(config(**options)) is None


def test_digest_is_of_sizes_gpu_and_checkpoint(checkpoint: TalkerCheckpoint) -> None:
    kernels = EngineKernels(str(checkpoint.folder), SHAPE, 32, 32, 256)
    digests = {
        kernels.digest((9, 0)),
        kernels.digest((8, 9)),
        replace(kernels, shape=replace(SHAPE, slots=32)).digest((9, 0)),
        replace(kernels, checkpoint="/nowhere").digest((9, 0)),
        replace(kernels, fallback="float32").digest((9, 0)),
        replace(kernels, fp8_cache=True).digest((9, 0)),
    }
    assert len(digests) == 6
    assert kernels.digest((9, 0)) in digests


def test_failure_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_ahead.sys, "executable", "/bin/false")
    with caplog.at_level(logging.INFO):
        compile_ahead._run(EngineKernels.of(config()), 7)  # type: ignore[arg-type]  # not None
    assert [record.getMessage() for record in caplog.records] == ["GPU kernels are compiled at their first use: exit 1"]


class Compiler:
    """In place of the compiling process; `ahead`: what it was started with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead: list[EngineKernels] = []
        self.earlier: list[EngineKernels] = []
        """What an earlier start has compiled."""
        monkeypatch.setattr(compile_ahead.subprocess, "run", self.run)
        monkeypatch.setattr(compile_ahead, "_compiled_before", lambda kernels: kernels in self.earlier)

    def run(self, command: list[str], **_: Any) -> CompletedProcess[str]:
        self.ahead.append(EngineKernels.from_json(command[3]))
        return CompletedProcess(command, 0, "76 of 76 GPU kernels compiled ahead in 8.0 s\n", "")


@pytest.mark.parametrize(("dtype", "name"), [(torch.float32, "float32"), (torch.float16, "float16")])
def test_fallback_of_the_codec_is_compiled_once_and_alone(
    dtype: torch.dtype, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = Compiler(monkeypatch)
    line = compile_fallback(config(), dtype)
    assert line == f"codec in {name}: 76 of 76 GPU kernels compiled ahead in 8.0 s"
    all_kernels = EngineKernels.of(config())
    assert all_kernels is not None
    assert compiler.ahead == [replace(all_kernels, fallback=name)]
    compiler.earlier = compiler.ahead.copy()
    assert compile_fallback(config(), dtype) is None
    assert len(compiler.ahead) == 1


def test_fallback_of_an_engine_with_other_kernels_is_compiled_at_its_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(monkeypatch)
    assert compile_fallback(config(dtype="float32"), torch.float32) is None
    assert compiler.ahead == []
