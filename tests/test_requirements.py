"""The lists in requirements/: one version and hashes for each package, installed with --require-hashes only."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LISTS = sorted([*(ROOT / "requirements").glob("*.txt"), *(ROOT / "tests/compat/requirements").glob("*.txt")])
ENTRY = re.compile(r"([\w.-]+)==([\w.+!]+)(?: ; [^\\\n]+)? \\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def entries(path: Path) -> dict[str, str]:
    return dict(ENTRY.findall(path.read_text("utf-8")))


def listed(name: str) -> dict[str, str]:
    return entries(ROOT / "requirements" / f"{name}.txt")


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_every_package_has_one_version_and_hashes(path: Path) -> None:
    text = re.sub(r"^#.*\n", "", path.read_text("utf-8"), flags=re.MULTILINE)
    assert ENTRY.sub("", text) == ""
    names = [name.lower() for name, _ in ENTRY.findall(text)]
    assert names
    assert len(names) == len(set(names)), "two versions of one package"


@pytest.mark.parametrize(
    ("extra", "lists"),
    [
        ("cpu", ("cpu", "cpu-torch")),
        ("cuda", ("cuda",)),
        ("dev", ("cpu", "dev")),
        ("build", ("build",)),
        ("tools", ("tools",)),
    ],
)
def test_lists_hold_what_the_project_asks_for(extra: str, lists: tuple[str, ...]) -> None:
    extras = PROJECT["project"]["optional-dependencies"] | PROJECT["dependency-groups"]
    asked = [*extras[extra], *(extras["server"] if extra in ("cpu", "cuda") else ())]
    names = {re.split(r"[\[>=;]", requirement)[0] for requirement in asked} - {"voxgate"}
    assert names <= {name for each in lists for name in listed(each)}


def test_build_tools_are_the_same_everywhere() -> None:
    assert {listed(name)["setuptools"] for name in ("build", "cpu", "cuda")} == {listed("build")["setuptools"]}


def test_lists_are_installed_by_hash_only() -> None:
    files = [path for path in (ROOT / "scripts").iterdir() if path.is_file()]
    files += (ROOT / "docker").glob("Dockerfile.*")
    for path in files:
        text = path.read_text("utf-8").replace("\\\n", " ")
        for command in re.findall(r"^.*\binstall [^#\n]*-r .*$", text, re.MULTILINE):
            for each in re.split(r"&&|\|\|", command):
                assert " -r " not in each or "--require-hashes" in each or "$install " in each, f"{path.name}: {each}"
