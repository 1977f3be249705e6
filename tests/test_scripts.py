"""The scripts that run the tests, each those of its tier, and the environment that scripts/setup refuses."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"
APART = ("nightly", "reference", "compat")
"""Marks of the tests that do not run with every commit."""


@pytest.mark.parametrize(
    ("script", "ordinary", "marked"),
    [
        ("test", True, set()),
        ("test-nightly", True, {"nightly"}),
        ("test-reference", False, {"reference"}),
        ("test-compat", False, {"compat"}),
    ],
)
def test_script_runs_the_tests_of_its_tier(script: str, ordinary: bool, marked: set[str]) -> None:
    wanted = re.findall(r"""-m (\w+|"[^"]+")(?= )""", (SCRIPTS / script).read_text("utf-8"))[-1].strip('"')

    def runs(*marks: str) -> bool:
        return bool(eval(wanted, {name: name in marks for name in APART}))

    assert runs() == ordinary
    assert {mark for mark in APART if runs(mark)} == marked


SYSTEM_CHECK = "runs on Linux"
"""What scripts/setup says where `uname` names another system: the step behind the check of the environment."""


def make_checkout(folder: Path) -> Path:
    (folder / "scripts").mkdir(parents=True)
    shutil.copy(SCRIPTS / "setup", folder / "scripts")
    return folder


def make_environment(folder: Path, checkout: Path) -> Path:
    """An environment in which the packages of `checkout` are installed in place."""
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    installed = packages / "voxgate-0.1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: voxgate\nVersion: 0.1.0\n")
    source = {"url": checkout.as_uri(), "dir_info": {"editable": True}}
    (installed / "direct_url.json").write_text(json.dumps(source))
    return folder


def run_setup(checkout: Path, environment: Path) -> str:
    """Runs scripts/setup where `uname` names another system, so that it installs nothing; returns its error."""
    tools = checkout / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "uname").write_text("#!/bin/sh\necho Test\n")
    (tools / "uname").chmod(0o755)
    variables = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "VOXGATE_VENV": str(environment),
        "VOXGATE_ACCELERATOR": "cpu",
    }
    run = subprocess.run(
        ["/bin/sh", checkout / "scripts" / "setup"], env=variables, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 1
    return run.stderr


def test_setup_refuses_the_environment_of_another_checkout(tmp_path: Path) -> None:
    first, second = make_checkout(tmp_path / "first one"), make_checkout(tmp_path / "second")
    environment = make_environment(tmp_path / "shared", first)

    refusal = run_setup(second, environment)

    assert f"{environment} belongs to the checkout {first}:" in refusal
    assert "VOXGATE_VENV" in refusal
    assert "scripts/link-packages" in refusal
    assert SYSTEM_CHECK in run_setup(first, environment)


def test_setup_takes_the_environment_of_a_checkout_that_no_longer_exists(tmp_path: Path) -> None:
    first, second = make_checkout(tmp_path / "first"), make_checkout(tmp_path / "second")
    environment = make_environment(tmp_path / "shared", first)
    assert "belongs to the checkout" in run_setup(second, environment)

    shutil.rmtree(first)

    assert SYSTEM_CHECK in run_setup(second, environment)


def test_setup_takes_its_own_environment_that_was_copied_with_the_checkout(tmp_path: Path) -> None:
    first, second = make_checkout(tmp_path / "first"), make_checkout(tmp_path / "second")
    own = make_environment(second / ".venv", first)
    assert "belongs to the checkout" in run_setup(second, make_environment(tmp_path / "shared", first))

    assert SYSTEM_CHECK in run_setup(second, own)
