"""Files of a training run: weights, replaced atomically, and logs of one JSON object per line. Devices too."""

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
    """Write weights in half precision to a temporary file, and move it into place."""
    halves = {k: (v.half() if v.is_floating_point() else v).detach().cpu().contiguous() for k, v in state.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    save_file(halves, unfinished, metadata={"format": "pt"})
    unfinished.replace(path)


def read_parts(folder: Path, name: str) -> dict[str, Tensor]:
    """Read NAME.safetensors, or all of NAME.N.safetensors. Raises FileNotFoundError if there is neither."""
    paths = sorted(folder.glob(f"{name}.safetensors")) or sorted(folder.glob(f"{name}.*.safetensors"))
    if not paths:
        raise FileNotFoundError(f"{folder} has no {name}.safetensors")
    state: dict[str, Tensor] = {}
    for path in paths:
        state.update(load_file(path))
    return state


def load_weights(path: Path) -> dict[str, Tensor]:
    """Read weights, whole or in parts (`read_parts`), in single precision, on the CPU. Raises FileNotFoundError."""
    return {k: v.float() if v.is_floating_point() else v for k, v in read_parts(path.parent, path.stem).items()}


class TrainingLog:
    """Prints the measurements of a step, and appends them to a file, with the seconds since the start."""

    def __init__(self, log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._file = log.open("a", encoding="utf-8")
        self._began = time.monotonic()

    def write(self, **values: Any) -> None:
        """Write one entry; tensors become numbers or lists."""
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
    """Wait until the file exists. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} did not appear within {seconds:.0f} s")
        time.sleep(0.2)


def device_named(name: str) -> torch.device:
    """The device `name`, made current, with tensor cores enabled for single precision."""
    device = torch.device(name)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
    return device


def half_precision(device: torch.device) -> torch.autocast:
    """Autocast to bfloat16 on a GPU; on a CPU everything stays in single precision."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
