"""Looks names up in a package's source files without importing them.

Importing vLLM's GPU modules fails where there is no GPU build, and takes seconds where there is one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path


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
