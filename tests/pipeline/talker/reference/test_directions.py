"""Import directions inside the talker: {cpu, cuda} -> reference -> ipc."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from voxgate.pipeline.talker import reference

IMPORT_AND_COMPARE = """
import sys, torch
before = set(sys.modules)
import {modules}
unwanted = {{name for name in set(sys.modules) - before if name.startswith({prefixes!r})}}
sys.exit(', '.join(sorted(unwanted)) or 0)
"""


def run(script: str) -> None:
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr


def test_reference_imports_neither_an_engine_nor_a_compiler() -> None:
    package = "voxgate.pipeline.talker.reference"
    names = sorted(path.stem for path in Path(reference.__path__[0]).glob("*.py") if path.stem != "__init__")
    assert "step" in names
    prefixes = ("vllm", "triton", "numba", "voxgate.pipeline.talker.cuda", "voxgate.pipeline.talker.cpu")
    run(IMPORT_AND_COMPARE.format(modules=", ".join(f"{package}.{name}" for name in names), prefixes=prefixes))


def test_graph_sizes_needs_no_torch() -> None:
    """The gateway's process imports it before it knows whether there is a GPU."""
    run("import sys, voxgate.pipeline.cuda.graph_sizes; sys.exit('torch' in sys.modules)")
