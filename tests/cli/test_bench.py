from __future__ import annotations

import argparse
import sys
from types import ModuleType

import pytest
from voxgate.cli import bench
from voxgate.cli.main import main


def test_hands_its_flags_to_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[argparse.Namespace] = []
    module = ModuleType("bench_fake")
    module.configure = lambda parser: parser.add_argument("--streams", type=int)
    module.run = lambda parsed: seen.append(parsed) or 3
    monkeypatch.setitem(sys.modules, "bench_fake", module)
    monkeypatch.setitem(bench.MODULES, "fake", "bench_fake")
    monkeypatch.setitem(bench.BENCHES, "fake", "for this test")
    assert main(["bench", "fake", "--streams", "4"]) == 3
    assert seen[0].streams == 4


def test_an_unknown_measurement_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "nothing"])
    assert "invalid choice: 'nothing'" in capsys.readouterr().err
