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
    runs = [rest for keyword, rest in steps(image) if keyword == "RUN"]
    packages = next(n for n, run in enumerate(runs) if f"requirements/{image}.txt" in run and "--require-hashes" in run)
    product = next(n for n, run in enumerate(runs) if "compileall" in run)
    assert packages < product
    before = " ".join(rest for keyword, rest in steps(image) if keyword == "COPY" and "requirements" in rest)
    assert "requirements/build.txt " in before
    assert f"requirements/{image}.txt " in before


def test_build_context_has_every_package_and_no_private_files() -> None:
    kept = ignored((ROOT / ".dockerignore").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    folders = {folder.split("/")[0] for folder in project["tool"]["setuptools"]["package-dir"].values()}
    assert folders <= set(kept)
    assert {"pyproject.toml", "README.md", "LICENSE", "requirements"} <= set(kept)
    assert not {".git", "tests", "docker", "build"} & set(kept)
    assert all((ROOT / name).exists() for name in kept if "*" not in name)


@pytest.mark.parametrize("image", IMAGES)
def test_base_image_is_pinned_by_digest(image: str) -> None:
    arguments = dict(rest.partition("=")[::2] for keyword, rest in steps(image) if keyword == "ARG" and "=" in rest)
    assert re.fullmatch(r"docker\.io/library/debian:bookworm-\d{8}-slim@sha256:[0-9a-f]{64}", arguments["BASE"])
    assert {rest.split()[0] for keyword, rest in steps(image) if keyword == "FROM"} == {"${BASE}"}


@pytest.mark.parametrize("image", IMAGES)
def test_health_check_asks_the_admin_port(image: str) -> None:
    environment = " ".join(rest for keyword, rest in steps(image) if keyword == "ENV")
    port = re.findall(r"VOXGATE_ADMIN_PORT=(\d+)", environment)
    assert re.findall(r"127\.0\.0\.1:(\d+)/healthz", dict(steps(image))["HEALTHCHECK"]) == port
    assert "VOXGATE_ADMIN_HOST" not in environment, "the container's own address only"
