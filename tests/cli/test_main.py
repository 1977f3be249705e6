from __future__ import annotations

import re
import subprocess
import sys

import pytest
from fakes.waiting import DEADLINE_S
from voxgate.cli.failure import install_advice
from voxgate.cli.main import COMMANDS, main


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_every_command_has_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: voxgate")


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert re.fullmatch(r"voxgate \d+\.\d+\S*\n", capsys.readouterr().out)


def test_missing_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    assert "COMMAND" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve"], "voxgate serve: pydantic is not installed: "),
        (["voices", "add", "ada"], "voxgate voices: pydantic is not installed: "),
        (["bench", "ws"], "voxgate bench ws: pydantic is not installed: "),
    ],
)
def test_missing_library_is_reported_in_one_sentence(arguments: list[str], message: str) -> None:
    code = f"""
import sys
sys.modules["pydantic"] = sys.modules["numpy"] = None
from voxgate.cli.main import main
sys.exit(main({arguments}))
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.replace("numpy", "pydantic") == f"{message}{install_advice('cpu')}\n"


def test_interrupt_during_imports_ends_the_command_quietly() -> None:
    code = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background of a script

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "pydantic":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from voxgate.cli.main import main
sys.exit(main(["serve"]))
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert (ended.returncode, ended.stderr) == (130, "")


@pytest.mark.parametrize("command", ["", "say", "voices", "serve", "doctor"])
def test_help_imports_no_heavy_library(command: str) -> None:
    code = f"""
import sys
from voxgate.cli.main import main
try:
    main({[command, "--help"] if command else ["--help"]})
except SystemExit:
    print(sorted({{"torch", "vllm", "uvloop"}} & set(sys.modules)))
"""
    assert subprocess.check_output([sys.executable, "-c", code], text=True, timeout=DEADLINE_S).splitlines()[-1] == "[]"
