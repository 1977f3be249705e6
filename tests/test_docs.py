"""The documentation against the product: links lead somewhere, options exist and have the defaults that are told."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest
from voxgate.benchmarks import local as bench_local
from voxgate.benchmarks.gpu import command as bench_gpu
from voxgate.cli.settings_flags import add_flags
from voxgate.gateway.settings import Settings
from voxgate.loadtest import command as bench_ws

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ABOUT_OPTIONS = [ROOT / "docs" / f"{name}.md" for name in ("limits", "load", "operation", "scale", "tuning")]
OTHER_PROGRAMS = {"--build", "--scale", "--shm-size", "--gpus"}
"""Flags of Docker and its like."""


def anchors(page: Path) -> set[str]:
    """As GitHub makes them from headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if re.match(r"https?:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path) if path else page
        assert linked.exists(), target
        if anchor and linked.suffix == ".md":
            assert anchor in anchors(linked), target


def options() -> set[str]:
    """Every flag of the commands that the pages are about."""
    found: set[str] = set()
    benches = [bench.configure for bench in (bench_ws, bench_local, bench_gpu)]
    for configure in (*benches, lambda parser: add_flags(parser, Settings)):
        parser = argparse.ArgumentParser()
        configure(parser)
        found |= set(parser._option_string_actions)
    return found


@pytest.mark.parametrize("page", ABOUT_OPTIONS, ids=name)
def test_options_exist(page: Path) -> None:
    told = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", page.read_text("utf-8")))
    assert told - OTHER_PROGRAMS <= options()


def test_defaults_are_as_told() -> None:
    text = (ROOT / "docs/tuning.md").read_text("utf-8")
    told = re.findall(r"`--([a-z-]+)`(?:, `--([a-z-]+)`)? \((\d+)(?:, (\d+))?\)", text)
    assert len(told) >= 8
    for first, second, value, other in told:
        assert getattr(Settings(), first.replace("-", "_")) == int(value), first
        if other:
            assert getattr(Settings(), second.replace("-", "_")) == int(other), second


def test_variables_are_settings() -> None:
    for page in ABOUT_OPTIONS:
        for variable in re.findall(r"\bVOXGATE_([A-Z][A-Z_]+)\b", page.read_text("utf-8")):
            assert variable.lower() in Settings.model_fields, f"{name(page)}: {variable}"
