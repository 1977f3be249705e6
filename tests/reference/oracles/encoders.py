"""Codes and speaker vector of a recording, as the reference computes them for a voice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from family_cases import RECORDINGS, REFERENCE_TEXT, recording

from .qwen import model


def record(work: Path) -> dict[str, np.ndarray]:
    said: dict[str, np.ndarray] = {}
    for variant, rate_hz, samples in RECORDINGS:
        heard = model(variant, work).create_voice_clone_prompt((recording(samples), rate_hz), REFERENCE_TEXT)[0]
        name = f"{variant}/{rate_hz}/{samples}"
        said[f"{name}/codes"] = heard.ref_code.numpy().astype(np.int16)
        said[f"{name}/vector"] = heard.ref_spk_embedding.float().numpy()
    return said
