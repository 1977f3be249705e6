"""Checkpoints that are either the old one or the new one, and logs of one JSON object a line."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor


def save_weights(path: Path, state: Mapping[str, Tensor]) -> None:
    """Half precision, written beside and moved into place."""
    halves = {k: (v.half() if v.is_floating_point() else v).detach().cpu().contiguous() for k, v in state.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".tmp")
    save_file(halves, beside, metadata={"format": "pt"})
    beside.replace(path)


def load_weights(path: Path) -> dict[str, Tensor]:
    """Single precision, on the CPU."""
    return {k: v.float() if v.is_floating_point() else v for k, v in load_file(path).items()}


class TrainingLog:
    """Prints and keeps what a step says of itself: `LOG` gets one line an entry, with the seconds since the start."""

    def __init__(self, log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._file = log.open("a", encoding="utf-8")
        self._began = time.monotonic()

    def say(self, **values: Any) -> None:
        entry: dict[str, Any] = {"at_s": round(time.monotonic() - self._began, 1)}
        for name, value in values.items():
            entry[name] = _plain(value)
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()
        print(" ".join(f"{name} {value}" for name, value in entry.items()), flush=True)


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        value = value.detach().float().tolist()
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def wait_for(path: Path, seconds: float) -> None:
    """Until the file is there. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} did not appear within {seconds:.0f} s")
        time.sleep(0.2)


def device_named(name: str) -> torch.device:
    """The device, with what every step wants of it: tensor cores for single precision, and a name for tracebacks."""
    device = torch.device(name)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
    return device


def half_precision(device: torch.device) -> torch.autocast:
    """bfloat16 on a GPU; on a CPU everything stays in single precision."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
