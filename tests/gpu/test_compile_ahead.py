"""Kernels are compiled ahead under the keys of their launches, and in several processes. Needs Triton and no GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from voxgate.pipeline.cuda.kernel_compiler import compile_all, is_complete, mark_complete

ROOT = Path(__file__).parents[2]


def test_every_launch_of_the_engine_was_compiled_ahead_under_its_key() -> None:
    command = [sys.executable, "-m", "tests.gpu.launch_keys"]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    assert result["missing"] == []
    assert result["launched"] > 100
    # What is not launched is the self-test of the layers, which vLLM would run.
    assert result["ahead"] - result["launched"] <= 3
    assert result["different"] == []
    assert result["fallback"] > 20
    assert result["tma"] > 3
    assert result["other"] == []
    ahead, launched = result["hashes"]
    assert ahead == launched


@pytest.mark.parametrize("processes", [1, 3])
def test_every_job_runs_once_and_one_that_fails_harms_no_other(
    processes: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def write(number: int) -> None:
        if number == 3:
            raise ValueError("no such instruction")
        if number == 5:
            os._exit(139)  # the compiler has crashed
        with (tmp_path / str(number)).open("x"):
            pass

    done = compile_all([partial(write, number) for number in range(9)], processes)
    assert (done.kernels, done.failed) == (9, 2)
    assert sorted(int(path.name) for path in tmp_path.iterdir()) == [0, 1, 2, 4, 6, 7, 8]
    assert "no such instruction" in capfd.readouterr().err


def test_emptying_the_cache_has_kernels_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "one"))
    assert not is_complete("ab" * 32)
    mark_complete("ab" * 32)
    assert is_complete("ab" * 32)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "two"))
    assert not is_complete("ab" * 32)
