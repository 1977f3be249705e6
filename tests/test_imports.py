"""Who may import whom, read from the syntax trees: gateway → pipeline → codecs, never back."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("gateway", "pipeline", "codecs", "client", "cli", "web", "voices")

MAY_IMPORT: dict[str, set[str]] = {
    "gateway": {"pipeline", "codecs", "web"},
    "pipeline": {"codecs", "voices"},
    "codecs": set(),
    "client": set(),
    "cli": set(PACKAGES),
    "web": set(),
    "voices": set(),
}
"""Packages of the project that each package may import, besides itself."""

CORNERS: dict[str, tuple[str, ...]] = {
    "aiohttp": ("gateway/http/", "gateway/dialects/", "gateway/listener.py", "cli/load/targets/"),
    "vllm": ("pipeline/talker/",),
    "opuslib": ("codecs/",),
    "lameenc": ("codecs/",),
    "websockets": (
        "gateway/listener.py",
        "gateway/transport/handshake.py",
        "gateway/transport/websocket.py",
        "client/",
        "cli/load/targets/",
    ),
    "prometheus_client": ("gateway/observability/",),
    "opentelemetry": ("gateway/observability/tracing.py",),
}
"""Where a library may be imported."""

MOST_FILES = {"opuslib": 1, "lameenc": 1}

FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if "demo" not in path.parts)
"""The demo voice's recipe and evaluation stand beside the product, no package of it."""


def imports(path: Path) -> Iterator[str]:
    """Every module imported anywhere in the file, by its absolute name."""
    inside = ("voxgate", *path.relative_to(ROOT).with_suffix("").parts)
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = inside[: -node.level] if node.level else ()
            module = ".".join((*start, *((node.module or "").split(".") if node.module else ())))
            yield module
            # `from .. import pipeline` names a package only behind the import.
            yield from (f"{module}.{alias.name}" for alias in node.names)


def names(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", FILES, ids=names)
def test_imports_go_one_way(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    allowed = MAY_IMPORT[package] | {package}
    for module in imports(path):
        parts = module.split(".")
        if parts[0] == "voxgate" and len(parts) > 1 and parts[1] in PACKAGES:
            assert parts[1] in allowed, f"{names(path)} imports {module}"


@pytest.mark.parametrize("library", CORNERS)
def test_libraries_stay_in_their_corner(library: str) -> None:
    users = [names(p) for p in FILES if any(m.split(".")[0] == library for m in imports(p))]
    assert all(user.startswith(CORNERS[library]) for user in users), users
    assert len(users) <= MOST_FILES.get(library, 100), users


def test_the_gateway_starts_without_torch_or_vllm() -> None:
    check = (
        "import sys, voxgate.gateway.server;"
        "sys.exit(', '.join({'torch', 'vllm', 'transformers', 'opuslib'} & set(sys.modules)) or 0)"
    )
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
