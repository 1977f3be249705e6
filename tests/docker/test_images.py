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
def test_hadolint_has_nothing_to_say(image: str) -> None:
    accepts(tool("hadolint"), DOCKER / f"Dockerfile.{image}")


@pytest.mark.parametrize("image", IMAGES)
def test_runs_as_nobody_in_particular_and_can_be_stopped(image: str) -> None:
    last = [keyword for keyword, _ in steps(image)]
    last = last[len(last) - last[::-1].index("FROM") :]
    by_name = dict(steps(image))
    assert by_name["USER"] == "10001"
    assert "HEALTHCHECK" in last
    assert by_name["ENTRYPOINT"].startswith('["tini", "--"'), "a process that reaps children and passes signals on"
    assert by_name["STOPSIGNAL"] == "SIGTERM"
    assert "gcc" not in by_name["RUN"] or image == "cuda"


@pytest.mark.parametrize("image", IMAGES)
def test_what_changes_seldom_comes_first(image: str) -> None:
    copies = [rest for keyword, rest in steps(image) if keyword == "COPY"]
    assert copies[0].startswith(f"requirements/{image}.txt")
    assert copies[1] == ". ."
    assert copies[2].startswith("--from=build")


def test_the_builder_gets_every_package_and_nothing_private() -> None:
    kept = ignored((ROOT / ".dockerignore").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    folders = {folder.split("/")[0] for folder in project["tool"]["setuptools"]["package-dir"].values()}
    assert folders <= set(kept)
    assert {"pyproject.toml", "README.md", "LICENSE", "requirements"} <= set(kept)
    assert not {".git", "tests", "docker", "build"} & set(kept)
    assert all((ROOT / name).exists() for name in kept if "*" not in name)


def test_pins_are_found_where_the_image_looks() -> None:
    """The image installs two packages with the versions of the list of requirements."""
    pins = (ROOT / "requirements/cpu.txt").read_text("utf-8")
    run = " ".join(rest for keyword, rest in steps("cpu") if keyword == "RUN")
    names = re.findall(r"s/\^\\\((\w+)==\[\^ ;\]\*\\\)", run)
    assert names == ["setuptools", "torch"]
    for name in names:
        assert len(re.findall(rf"^{name}==\S+$", pins, re.MULTILINE)) == 1
