from __future__ import annotations

import re
import subprocess
import sys

import pytest
from voxgate.cli.main import COMMANDS, main


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_every_command_explains_itself(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: voxgate")


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert re.fullmatch(r"voxgate \d+\.\d+\S*\n", capsys.readouterr().out)


def test_no_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    assert "COMMAND" in capsys.readouterr().err


def test_a_package_that_is_missing_is_named() -> None:
    code = """
import sys
sys.modules["pydantic"] = None
from voxgate.cli.main import main
main(["serve"])
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "voxgate serve: pydantic is not installed here: run scripts/setup\n")


@pytest.mark.parametrize("command", ["", "say", "voices", "serve", "doctor"])
def test_help_loads_nothing_heavy(command: str) -> None:
    code = f"""
import sys
from voxgate.cli.main import main
try:
    main({[command, "--help"] if command else ["--help"]})
except SystemExit:
    print(sorted({{"torch", "vllm", "uvloop"}} & set(sys.modules)))
"""
    assert subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()[-1] == "[]"
