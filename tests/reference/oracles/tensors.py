"""Names and shapes of every tensor, in the classes of the reference."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from small_family import VARIANTS

from .qwen import codec_shapes, model_shapes


def record(work: Path) -> dict[str, np.ndarray]:
    files = {name: model_shapes(name, work) for name in VARIANTS} | {"codec": codec_shapes()}
    return {file: np.array(json.dumps(shapes, separators=(",", ":"))) for file, shapes in files.items()}
