"""The structure of the tree: directions of imports, libraries in their corners, names and folders."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from fakes.waiting import DEADLINE_S

ROOT = Path(__file__).parents[1]
PACKAGES = ("gateway", "pipeline", "codecs", "client", "cli", "loadtest", "integrations", "web", "voices")
"""Packages of the wheel."""
OUTSIDE = ("benchmarks", "recipes")
"""Folders that are not in the wheel: they may import everything, and no package imports them."""

MAY_IMPORT: dict[str, set[str]] = {
    "gateway": {"pipeline", "codecs", "web"},
    "pipeline": {"codecs", "voices"},
    "codecs": set(),
    "client": set(),
    "cli": {"gateway", "pipeline", "codecs", "client", "loadtest", "web", "voices"},
    "loadtest": {"client", "codecs"},
    "integrations": {"client"},
    "web": set(),
    "voices": set(),
}
"""Packages of the project that each package may import, besides itself."""

GATEWAY_LAYERS: tuple[tuple[str, ...], ...] = (
    ("server", "workers/"),
    ("listener",),
    ("http/",),
    ("transport/",),
    ("protocols/",),
    ("session/",),
    ("access/", "observability/", "engine", "shutdown"),
    ("settings",),
    ("messages/client", "messages/server", "audio_header"),
    ("messages/connection", "messages/start_fields"),
    ("messages/resumption",),
    ("messages/",),
    ("errors",),
)
TALKER_LAYERS: tuple[tuple[str, ...], ...] = (
    ("engine", "remote_engine", "prompt_pool"),
    ("generation", "slot_lease"),
    ("prompt", "slot_owners"),
    ("vllm/",),
    ("cpu/", "cuda/"),
    ("reference/",),
    ("start_progress",),
)
LAYERS = {"gateway": GATEWAY_LAYERS, "pipeline/talker": TALKER_LAYERS}
"""Modules of a folder from the top layer to the bottom one, by the beginning of their path.

A module imports from its own layer and from those below.
"""

CORNERS: dict[str, tuple[str, ...]] = {
    "aiohttp": ("gateway/http/", "loadtest/targets/"),
    "lameenc": ("codecs/mp3.py",),
    "opentelemetry": ("gateway/observability/tracing.py",),
    "opuslib": ("codecs/opus.py",),
    "prometheus_client": ("gateway/observability/",),
    "triton": ("pipeline/cuda/", "pipeline/talker/cuda/", "codecs/neural/cuda/"),
    "wyoming": ("gateway/protocols/wyoming.py", "gateway/transport/wyoming_listener.py"),
    "vllm": ("pipeline/talker/vllm/", "pipeline/talker/cpu/vllm_ops.py"),
    "websockets": (
        "gateway/listener.py",
        "gateway/transport/handshake.py",
        "gateway/transport/websocket.py",
        "client/",
        "loadtest/targets/",
    ),
}
"""Files and folders in which a library may be imported."""

MAX_FILES_PER_FOLDER = 16
"""Modules that a reader can still overlook in one listing."""


def modules(*folders: str) -> list[Path]:
    """The source files below these folders of the tree."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


FILES = modules(*PACKAGES)


@cache
def syntax_tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def imports(path: Path, *, at_start: bool = False) -> Iterator[str]:
    """Absolute names of the modules that a file imports; `at_start`: only those that importing the file imports."""
    inside = ("voxgate", *path.relative_to(ROOT).with_suffix("").parts)
    for node in executed_at_start(syntax_tree(path)) if at_start else ast.walk(syntax_tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = inside[: -node.level] if node.level else ()
            module = ".".join((*start, *((node.module or "").split(".") if node.module else ())))
            yield module
            # The names may be modules: `from .. import pipeline`.
            yield from (f"{module}.{alias.name}" for alias in node.names)


def executed_at_start(tree: ast.Module) -> Iterator[ast.stmt]:
    """The statements of a module that run when it is imported, without those under `if TYPE_CHECKING`."""
    pending: list[ast.stmt] = list(tree.body)
    while pending:
        statement = pending.pop()
        yield statement
        if isinstance(statement, ast.If) and "TYPE_CHECKING" not in ast.unparse(statement.test):
            pending += statement.body + statement.orelse
        elif isinstance(statement, ast.Try):
            pending += statement.body + statement.orelse + statement.finalbody


def local_files(path: Path, *, at_start: bool = False) -> Iterator[Path]:
    """Files of the tree that a file imports."""
    for module in imports(path, at_start=at_start):
        parts = module.split(".")
        if parts[0] == "voxgate" and len(parts) > 1:
            file = ROOT.joinpath(*parts[1:]).with_suffix(".py")
            if file.exists() and file != path:
                yield file


@pytest.mark.parametrize("path", FILES, ids=name)
def test_packages_import_in_one_direction(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    allowed = MAY_IMPORT[package] | {package}
    for module in imports(path):
        parts = module.split(".")
        assert parts[0] not in ("train", "eval"), f"{name(path)} imports {module}"
        if parts[0] == "voxgate" and len(parts) > 1 and (ROOT / parts[1]).is_dir():
            assert parts[1] in allowed, f"{name(path)} imports {module}"


@pytest.mark.parametrize("folder", LAYERS)
def test_layers_import_downwards(folder: str) -> None:
    def layer(path: Path) -> int:
        inside = path.relative_to(ROOT / folder).as_posix()
        ranks = [
            (len(start), rank)
            for rank, starts in enumerate(LAYERS[folder])
            for start in starts
            if inside.startswith(start)
        ]
        assert ranks, f"{name(path)} stands in no layer"
        return max(ranks)[1]  # the longest beginning counts

    upwards = [
        f"{name(path)} imports {name(imported)}"
        for path in modules(folder)
        if path.name != "__init__.py"
        for imported in local_files(path)
        if imported.is_relative_to(ROOT / folder) and imported.name != "__init__.py" and layer(imported) < layer(path)
    ]
    assert upwards == []


def test_no_import_cycles() -> None:
    graph = {path: set(local_files(path, at_start=True)) for path in FILES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(name(path) for path in reversed(error.args[1])))


@pytest.mark.parametrize("library", CORNERS)
def test_libraries_are_imported_in_their_corner(library: str) -> None:
    users = [name(path) for path in FILES if any(module.split(".")[0] == library for module in imports(path))]
    assert users, f"no module imports {library}"
    assert [user for user in users if not user.startswith(CORNERS[library])] == []


def test_fakes_import_no_tests() -> None:
    tests = {path.name.removesuffix(".py") for path in (ROOT / "tests").iterdir()} - {"fakes", "__init__"}
    for path in modules("tests/fakes"):
        assert {module.split(".")[0] for module in imports(path)} & tests == set(), name(path)


def test_class_names_are_unique() -> None:
    """Private names aside: those are read within one module."""
    found = defaultdict(list)
    for path in modules(*PACKAGES, *OUTSIDE):
        for node in ast.walk(syntax_tree(path)):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(name(path))
    assert {class_name: paths for class_name, paths in found.items() if len(paths) > 1} == {}


def test_folders_are_small() -> None:
    folders = defaultdict(list)
    for path in modules(*PACKAGES, *OUTSIDE):
        if path.name not in ("__init__.py", "__main__.py"):
            folders[name(path.parent)].append(path.name)
    assert {folder: len(files) for folder, files in folders.items() if len(files) > MAX_FILES_PER_FOLDER} == {}


def test_gateway_starts_without_torch_or_vllm() -> None:
    check = (
        "import sys, voxgate.gateway.server;"
        "sys.exit(', '.join({'torch', 'vllm', 'transformers', 'opuslib'} & set(sys.modules)) or 0)"
    )
    result = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert result.returncode == 0, result.stderr
