"""Steps that run on the training machine import nothing that is not installed there."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import train

FOLDER = Path(train.__file__).parent
INSTALLED = {"onnxruntime", "hibari", "torch", "numpy", "tokenizers", "safetensors"}
AT_HOME = {
    "text/corpus.py",
    "text/frequent.py",
    "speech/word_times.py",
    "speech/check_word_times.py",
    "speech/check_visemes.py",
    "talker/spoken_codes.py",
    "plots.py",
}
"""Commands that run where this project is installed."""


def imported(path: Path) -> set[str]:
    """Top-level packages of the absolute imports in a file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
    return found


def test_training_steps_import_only_what_the_training_machine_has() -> None:
    for path in sorted(FOLDER.rglob("*.py")):
        if str(path.relative_to(FOLDER)) not in AT_HOME:
            surplus = imported(path) - INSTALLED - set(sys.stdlib_module_names)
            assert not surplus, f"{path} imports {surplus}"
