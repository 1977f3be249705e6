"""Free memory of the GPU, asked in a process of its own: a CUDA context would take half a gigabyte of it for good."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from dataclasses import asdict, dataclass

from ..errors import EngineError

QUERY_TIMEOUT_S = 30.0
"""The driver answers within a second, except when it is loaded by the first program since boot."""
_DRIVER = "libcuda.so.1"


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Memory of the first visible GPU, or of its MIG slice, in bytes; `free` is without the context of a process."""

    name: str
    free: int
    total: int


def query_device_memory() -> DeviceMemory:
    """Asks the driver in a child process; blocks for a second. Raises EngineError without a usable GPU."""
    command = [sys.executable, "-c", f"from {__name__} import print_device_memory; print_device_memory()"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=QUERY_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise EngineError(f"the NVIDIA driver did not answer within {QUERY_TIMEOUT_S:.0f} s") from None
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["the query failed"])[-1]
        raise EngineError(f"no usable NVIDIA GPU: {reason}")
    return DeviceMemory(**json.loads(done.stdout))


def print_device_memory() -> None:
    """Prints the answer as JSON; ends the process with a reason on stderr when there is none."""
    try:
        print(json.dumps(asdict(_ask_driver())))
    except (OSError, EngineError) as error:
        sys.exit(str(error))


def _ask_driver() -> DeviceMemory:
    driver = ctypes.CDLL(_DRIVER)

    def call(name: str, *arguments: object) -> None:
        if status := getattr(driver, name)(*arguments):
            raise EngineError(f"{name} failed with CUDA error {status}")

    device, context = ctypes.c_int(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    free, total, name = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.create_string_buffer(128)
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    call("cuDeviceGetName", name, len(name), device)
    return DeviceMemory(name.value.decode(), free.value, total.value)
