"""Runs the steps of a Dockerfile in clean roots, where there is no container engine to build an image with.

Needs to be root, and a folder with a minimal Debian (debootstrap --variant=minbase) to stand for the base image:

    python tests/docker/dockerfile_runner.py docker/Dockerfile.cpu DEBIAN WORK [--mount FOLDER]... [--env NAME=VALUE]...

leaves the last stage's root in WORK/stage1 (or whatever its number is). What a container engine isolates, this does
not; it shows that the steps work on what they say they need, and on nothing else.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
SEEN_BY_ALL = ("/proc", "/sys", "/dev")


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """(keyword, arguments) of each instruction, with continued lines joined and without comments."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    for line in joined.splitlines():
        if line.strip():
            keyword, _, rest = line.strip().partition(" ")
            yield keyword.upper(), rest.strip()


def ignored(text: str) -> list[str]:
    """Paths that `.dockerignore` allows: it excludes everything and names the exceptions."""
    kept = [line.removeprefix("!") for line in text.splitlines() if line.startswith("!")]
    assert "*" in text.splitlines()
    return kept


@dataclass
class BuildStage:
    """The root folder of one stage and its settings."""

    root: Path
    env: dict[str, str] = field(default_factory=lambda: {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"})
    workdir: str = "/"

    def inside(self, path: str) -> Path:
        target = Path(self.workdir, path)
        return self.root / target.relative_to("/")

    def run(self, command: str, more: dict[str, str]) -> None:
        print(f"RUN {command}", flush=True)
        shell = f"cd {shlex.quote(self.workdir)} && {command}"
        subprocess.run(["chroot", self.root, "/bin/sh", "-c", shell], env={**self.env, **more}, check=True)


class DockerfileBuild:
    """Runs FROM, ENV, WORKDIR, COPY and RUN; records the other instructions."""

    def __init__(self, debian: Path, work: Path, mounts: list[str], env: dict[str, str]) -> None:
        self._debian, self._work, self._mounts, self._env = debian, work, mounts, env
        self._stages: dict[str, BuildStage] = {}
        self._stage = BuildStage(work)
        self._leave = ExitStack()

    def run(self, dockerfile: Path) -> BuildStage:
        with self._leave:
            for keyword, rest in instructions(dockerfile.read_text("utf-8")):
                self._step(keyword, rest)
            return self._stage

    def _step(self, keyword: str, rest: str) -> None:
        match keyword:
            case "FROM":
                self._begin(rest.split()[-1] if " AS " in rest else "last")
            case "ENV":
                for pair in shlex.split(rest):
                    name, _, value = pair.partition("=")
                    self._stage.env[name] = value.replace("$PATH", self._stage.env["PATH"])
            case "WORKDIR":
                self._stage.workdir = rest
                self._stage.inside(".").mkdir(parents=True, exist_ok=True)
            case "COPY":
                self._copy(shlex.split(rest))
            case "RUN":
                self._stage.run(rest, self._env)

    def _begin(self, name: str) -> None:
        root = self._work / f"stage{len(self._stages)}"
        subprocess.run(["cp", "-a", self._debian, root], check=True)
        shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
        self._stage = self._stages[name] = BuildStage(root)
        for mount in (*SEEN_BY_ALL, *self._mounts):
            self._leave.enter_context(_mounted(mount, root))

    def _copy(self, words: list[str]) -> None:
        options = [word for word in words if word.startswith("--from=")]
        *sources, target = [word for word in words if not word.startswith("--")]
        into = self._stage.inside(target)
        if options:
            origin = self._stages[options[0].removeprefix("--from=")]
            subprocess.run(["cp", "-a", origin.inside(sources[0]), into], check=True)
            return
        kept = ignored(ROOT.joinpath(".dockerignore").read_text("utf-8"))
        for source in kept if sources == ["."] else sources:
            assert source.split("/")[0] in kept, f"{source} is not let through by .dockerignore"
            place = into / source if sources == ["."] else into
            place.parent.mkdir(parents=True, exist_ok=True)
            place = place if not target.endswith("/") or sources == ["."] else into / Path(source).name
            place.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "-a", "-T", ROOT / source, place], check=True)


@contextmanager
def _mounted(path: str, root: Path) -> Iterator[None]:
    place = root / path.lstrip("/")
    if Path(path).is_file():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    else:
        place.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "--rbind", path, place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Run a Dockerfile's steps in clean roots.")
    parser.add_argument("dockerfile", type=Path)
    parser.add_argument("debian", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--mount", action="append", default=[])
    parser.add_argument("--env", action="append", default=[])
    parsed = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("needs to be root")
    env = dict(pair.partition("=")[::2] for pair in parsed.env)
    stage = DockerfileBuild(parsed.debian, parsed.work, parsed.mount, env).run(parsed.dockerfile)
    print(stage.root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
