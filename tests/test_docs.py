"""Compares the documentation with the product: links, file names, options and their defaults."""

from __future__ import annotations

import argparse
import re
import subprocess
from pathlib import Path

import pytest
from voxgate.benchmarks import local as bench_local
from voxgate.benchmarks.gpu import command as bench_gpu
from voxgate.cli import serve
from voxgate.gateway.settings import Settings
from voxgate.loadtest import command as bench_ws

ROOT = Path(__file__).parents[1]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "recipes").rglob("*.md")),
]
ABOUT_OPTIONS = [
    ROOT / "docs" / f"{name}.md"
    for name in ("deployment", "limits", "loadtest", "observability", "reliability", "tuning")
]
OTHER_PROGRAMS = {"--build", "--build-arg", "--gpus", "--read-only", "--scale", "--shm-size", "--tmpfs"} | {
    "--require-hashes",
    "--seed",
    "--timing",
}
"""Flags of Docker, pip and pytest."""


def anchors(page: Path) -> set[str]:
    """Anchors that GitHub derives from the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_have_targets(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if re.match(r"https?:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path) if path else page
        assert linked.exists(), target
        if anchor and linked.suffix == ".md":
            assert anchor in anchors(linked), target


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_named_source_files_exist(page: Path) -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for path in re.findall(r"`(\w[\w./]*\.(?:py|cu|h|js))`", page.read_text("utf-8")):
        assert any(file == path or file.endswith(f"/{path}") for file in tracked), f"{name(page)}: {path}"


def options() -> set[str]:
    """Every flag of the commands that the pages describe."""
    found: set[str] = set()
    benches = [bench.configure for bench in (bench_ws, bench_local, bench_gpu)]
    for configure in (*benches, serve.configure):
        parser = argparse.ArgumentParser()
        configure(parser)
        found |= set(parser._option_string_actions)
    return found


@pytest.mark.parametrize("page", ABOUT_OPTIONS, ids=name)
def test_options_exist(page: Path) -> None:
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", page.read_text("utf-8")))
    assert named - OTHER_PROGRAMS <= options()


def test_documented_defaults_are_those_of_the_settings() -> None:
    text = (ROOT / "docs/tuning.md").read_text("utf-8")
    documented = re.findall(r"`--([a-z-]+)`(?:, `--([a-z-]+)`)? \((\d+)(?:, (\d+))?\)", text)
    assert len(documented) >= 8
    for first, second, value, other in documented:
        assert getattr(Settings(), first.replace("-", "_")) == int(value), first
        if other:
            assert getattr(Settings(), second.replace("-", "_")) == int(other), second


def test_documented_variables_are_settings() -> None:
    for page in ABOUT_OPTIONS:
        for variable in re.findall(r"\bVOXGATE_([A-Z][A-Z_]+)\b", page.read_text("utf-8")):
            assert variable.lower() in Settings.model_fields, f"{name(page)}: {variable}"
