"""Audio of the codec: from codes, and after a reference recording that is cut off."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from family_cases import CASES, DECODED_FRAMES, HEARD, decoded_codes

from .qwen import model, speak


def record(work: Path) -> dict[str, np.ndarray]:
    codec = model("0b6-base", work).model.speech_tokenizer
    said: dict[str, np.ndarray] = {}
    for frames in DECODED_FRAMES:
        (audio,), _ = codec.decode([{"audio_codes": torch.from_numpy(decoded_codes(frames))}])
        said[f"codes/{frames}"] = audio
    for case in CASES:
        if case.name in HEARD:
            heard = speak(case, work)
            said |= {f"{case.name}/codes": heard["codes"].astype(np.int16), f"{case.name}/audio": heard["audio"]}
    return said
