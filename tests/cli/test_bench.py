from __future__ import annotations

import argparse
import sys
from types import ModuleType

import pytest
from voxgate.cli import bench
from voxgate.cli.bench import Benchmark
from voxgate.cli.main import main


def test_options_are_passed_to_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[argparse.Namespace] = []
    module = ModuleType("bench_fake")
    module.configure = lambda parser: parser.add_argument("--streams", type=int)
    module.run = lambda parsed: seen.append(parsed) or 3
    monkeypatch.setitem(sys.modules, "bench_fake", module)
    monkeypatch.setitem(bench.BENCHMARKS, "fake", Benchmark("bench_fake", "for this test"))
    assert main(["bench", "fake", "--streams", "4"]) == 3
    assert seen[0].streams == 4


def test_unknown_benchmark_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "nothing"])
    assert "invalid choice: 'nothing'" in capsys.readouterr().err
