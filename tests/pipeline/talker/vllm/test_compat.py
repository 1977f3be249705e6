"""vLLM's internal names: used in one file only, found in the installed version, and missed with one sentence."""

from __future__ import annotations

import ast
import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from voxgate.pipeline.errors import EngineError
from voxgate.pipeline.talker.vllm import compat, plugin
from voxgate.pipeline.talker.vllm.proven import PROVEN, RequiredNames, SourceTree

ROOT = Path(__file__).parents[4]
COMPAT = "pipeline/talker/vllm/compat.py"
CPU_LAYERS = "pipeline/talker/cpu/vllm_ops.py"
"""Replaces two layers of vLLM's by their names in `compat`'s list; below `talker/vllm` in the order of imports."""
PUBLIC = {"vllm", "vllm.platforms"}
"""Modules whose names vLLM documents for users and plugins."""
INTERNAL_ATTRIBUTES = {"_all_token_ids", "_output_token_ids", "cudagraph_manager", "engine_core", "input_processor"}
"""Attributes of vLLM's objects that `compat` has accessors for."""

FILES = sorted(
    path
    for package in ("gateway", "pipeline", "codecs", "cli", "benchmarks", "loadtest")
    for path in (ROOT / package).rglob("*.py")
    if path.relative_to(ROOT).as_posix() != COMPAT
)


def vllm_imports(tree: ast.AST) -> Iterator[str]:
    """Modules of vLLM that a file imports from, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "vllm")
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "vllm":
            yield node.module or ""


def test_only_compat_imports_internal_modules() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): modules
        for path in FILES
        if (modules := set(vllm_imports(ast.parse(path.read_text("utf-8")))) - PUBLIC)
    }
    found.pop(CPU_LAYERS, None)
    assert not found


def test_cpu_layers_import_listed_names_only() -> None:
    modules = set(vllm_imports(ast.parse((ROOT / CPU_LAYERS).read_text("utf-8")))) - PUBLIC
    assert modules <= {owner.path.partition(":")[0] for owner in compat._NAMES["cpu"]}


def test_only_compat_uses_internal_attributes() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.attr}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in INTERNAL_ATTRIBUTES
    }
    assert not found


def test_only_compat_names_internal_modules_in_strings() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.value}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"vllm\.v\d[\w.:]*", node.value)
    }
    assert not found


@pytest.mark.parametrize("group", compat._NAMES)
def test_installed_version_has_all_names(group: str) -> None:
    assert compat.missing_names([group]) == []


def test_every_export_is_listed_in_a_group() -> None:
    listed = {name.replace(":", ".") for group in compat._NAMES.values() for owner in group for name in owner.all()}
    for name in compat._EXPORTS.values():
        name = name.replace(":", ".")
        assert any(each == name or each.startswith(f"{name}.") for each in listed), name


def test_type_checkers_see_every_export() -> None:
    tree = ast.parse((ROOT / COMPAT).read_text("utf-8"))
    (block,) = (each for each in tree.body if isinstance(each, ast.If))
    seen = {
        alias.name: f"{each.module}:{alias.name}"
        for each in block.body
        if isinstance(each, ast.ImportFrom)
        for alias in each.names
    }
    assert compat._EXPORTS.items() <= seen.items()


def test_missing_name_ends_start_with_one_sentence(tmp_path: Path) -> None:
    package = tmp_path / "vllm"
    package.mkdir()
    with pytest.raises(EngineError) as raised:
        compat.check("cpu", package)
    message = raised.value.message
    assert "\n" not in message
    assert re.match(r"vLLM [\d.]+\S* has no vllm\.engine\.arg_utils\.AsyncEngineArgs\.", message)
    assert "vllm.v1.core.sched.scheduler.Scheduler.schedule" in message
    assert message.endswith(f"it is proven with {PROVEN}")


@pytest.mark.parametrize(("device", "missing"), [("cpu", False), ("cuda", True)])
def test_gpu_names_are_needed_on_a_gpu_only(
    device: str, missing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "worker.py").write_text("class Worker: ...")
    monkeypatch.setattr(
        compat,
        "_NAMES",
        dict.fromkeys(compat._NAMES, ()) | {"gpu": [RequiredNames(f"{tmp_path.name}.worker:Worker", "model_runner")]},
    )
    if missing:
        with pytest.raises(EngineError, match=r"has no \S+\.worker\.Worker\.model_runner, which"):
            compat.check(device, tmp_path)
    else:
        compat.check(device, tmp_path)


def test_missing_export_raises_the_same_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("collections:NoSuchName", "vllm_without_this_module:Name"):
        monkeypatch.setitem(compat._EXPORTS, "Probe", name)
        with pytest.raises(EngineError, match=r"which Voxgate needs; it is proven with"):
            compat.Probe  # noqa: B018  # looking it up is the test


def test_unknown_attribute_of_compat_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="NoSuchExport"):
        compat.NoSuchExport  # noqa: B018  # looking it up is the test


SOURCE = """
from typing import TYPE_CHECKING
from .other import Base as Imported

if TYPE_CHECKING:
    from nowhere import Hidden
try:
    limit: int = 3
except ImportError:
    fallback = None

class Own(Imported):
    field: int
    def method(self):
        self.late = 1
        other.late_of_other = 1
"""


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("package.module:Own", True),
        ("package.module:limit", True),
        ("package.module:fallback", True),
        ("package.module:Imported", True),
        ("package.module:absent", False),
        ("package.absent:Own", False),
        ("package.module:Own.field", True),
        ("package.module:Own.method", True),
        ("package.module:Own.late", True),
        ("package.module:Own.late_of_other", False),
        ("package.module:Own.inherited", True),
        ("package.module:Imported.inherited", True),
        ("package.module:Own.absent", False),
        ("package:top", True),
    ],
)
def test_names_are_found_in_source(name: str, found: bool, tmp_path: Path) -> None:
    root = tmp_path / "package"
    root.mkdir()
    (root / "__init__.py").write_text("top = 1")
    (root / "module.py").write_text(SOURCE)
    (root / "other.py").write_text("class Base:\n    @property\n    def inherited(self): ...")
    assert SourceTree(root).defines(name) is found


def test_loop_sleeps_only_where_it_asks_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.engine import core

    now_s, slept = [100.0], []
    monkeypatch.setattr(core, "time", time)
    compat.spare_loop_sleep()
    monkeypatch.setattr(
        compat, "time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=slept.append, time=lambda: 7.0)
    )
    for at_s in (100.0, 100.002, 100.0025, 100.0035):
        now_s[0] = at_s
        core.time.sleep(0.001)
    assert slept == [0.001]
    assert core.time.time() == 7.0, "everything else is Python's"


def test_engine_process_gets_the_queue_and_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.engine import core

    class Process:
        scheduler = SimpleNamespace(wake_s=0.0)
        vllm_config = "configuration"

        def process_input_sockets(self) -> None: ...

    monkeypatch.setattr(core, "time", time)
    monkeypatch.setattr(core, "EngineCoreProc", Process)
    monkeypatch.setattr(plugin, "_wakeup_address", lambda config: f"voxgate-test-{config}-{uuid.uuid4().hex}")
    plugin.register()
    process = Process()
    process.process_input_sockets()
    assert process.input_queue.get()[1] is None  # type: ignore[attr-defined]  # set by the replacement
    assert process.scheduler.wait_for_notification(0.0)
    assert core.time is not time
