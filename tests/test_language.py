"""Comments, docstrings and documentation name programs by their terms, not as persons."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORDS = re.compile(r"\b(whoever|nobody|somebody|anybody)\b", re.IGNORECASE)
"""Pronouns for persons: the subject of a sentence about a program is its term."""
C_COMMENT = re.compile(r"/\*.*?\*/|(?<!:)//[^\n]*", re.DOTALL)
SUFFIXES = (".py", ".js", ".mjs", ".cu", ".h", ".md")


def files() -> list[str]:
    """Tracked and new files of the repository."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in listing if name.endswith(SUFFIXES) and (ROOT / name).is_file()]


def prose(path: Path) -> Iterator[str]:
    """The comments and docstrings of a source file, or the whole text of a document."""
    source = path.read_text("utf-8")
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(source)):
            # Strings that stand alone: docstrings, of attributes too.
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                yield node.value.value
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.string
    elif path.suffix == ".md":
        yield source
    else:
        yield from C_COMMENT.findall(source)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git repository")
def test_prose_names_programs_by_their_terms() -> None:
    found = [
        f"{name}: {line.strip()}"
        for name in files()
        if name != "tests/test_language.py"
        for text in prose(ROOT / name)
        for line in text.splitlines()
        if WORDS.search(line)
    ]
    assert found == []
