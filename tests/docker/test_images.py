"""The Dockerfiles: linted, and every file that they copy or run exists."""

from __future__ import annotations

import re
import tomllib

import pytest

from .checkers import DOCKER, ROOT, accepts, tool
from .dockerfile_runner import ignored, instructions

IMAGES = ("cpu", "cuda")


def steps(image: str) -> list[tuple[str, str]]:
    return list(instructions((DOCKER / f"Dockerfile.{image}").read_text("utf-8")))


@pytest.mark.parametrize("image", IMAGES)
def test_hadolint_reports_no_problem(image: str) -> None:
    accepts(tool("hadolint"), DOCKER / f"Dockerfile.{image}")


@pytest.mark.parametrize("image", IMAGES)
def test_image_runs_as_any_user_and_handles_signals(image: str) -> None:
    last = [keyword for keyword, _ in steps(image)]
    last = last[len(last) - last[::-1].index("FROM") :]
    by_name = dict(steps(image))
    assert by_name["USER"] == "10001"
    assert "HEALTHCHECK" in last
    assert by_name["ENTRYPOINT"].startswith('["tini", "--"'), "a process that reaps children and passes signals on"
    assert by_name["STOPSIGNAL"] == "SIGTERM"
    assert "gcc" not in by_name["RUN"] or image == "cuda"


@pytest.mark.parametrize("image", IMAGES)
def test_rarely_changing_layers_come_first(image: str) -> None:
    copies = [rest for keyword, rest in steps(image) if keyword == "COPY"]
    assert copies[0].startswith(f"requirements/{image}.txt")
    assert copies[1] == ". ."
    assert copies[2].startswith("--from=build")


def test_build_context_has_every_package_and_no_private_files() -> None:
    kept = ignored((ROOT / ".dockerignore").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    folders = {folder.split("/")[0] for folder in project["tool"]["setuptools"]["package-dir"].values()}
    assert folders <= set(kept)
    assert {"pyproject.toml", "README.md", "LICENSE", "requirements"} <= set(kept)
    assert not {".git", "tests", "docker", "build"} & set(kept)
    assert all((ROOT / name).exists() for name in kept if "*" not in name)


def test_image_finds_its_pinned_versions() -> None:
    """The image installs two packages with the versions of the list of requirements."""
    pins = (ROOT / "requirements/cpu.txt").read_text("utf-8")
    run = " ".join(rest for keyword, rest in steps("cpu") if keyword == "RUN")
    names = re.findall(r"s/\^\\\((\w+)==\[\^ ;\]\*\\\)", run)
    assert names == ["setuptools", "torch"]
    for name in names:
        assert len(re.findall(rf"^{name}==\S+$", pins, re.MULTILINE)) == 1
