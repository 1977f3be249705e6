"""Compiles CUDA C++ at run time with NVRTC, which comes with PyTorch, and launches it; needs no CUDA toolkit."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from ..errors import EngineError

SHARED_HEADERS = Path(__file__).parent / "csrc"
"""Folder of `device.h`, which every kernel includes."""
COOPERATIVE, PROGRAMMATIC_STREAM_SERIALIZATION = 2, 6
"""Values of CU_LAUNCH_ATTRIBUTE_COOPERATIVE and CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION."""
MAX_SHARED_ATTRIBUTE = 8
"""Value of CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES."""


PackedArguments = ctypes.Array[ctypes.c_uint64]
Launch = Callable[[int, int, PackedArguments], None]
"""Launches a kernel: number of blocks, threads of a block, and the kernel's `Params`."""


def pack_arguments(*values: Tensor | int | float | None) -> PackedArguments:
    """A kernel's `Params`: addresses of contiguous tensors (0 for None), int64 and double, 8 bytes each."""
    return (ctypes.c_uint64 * len(values))(*(_word(value) for value in values))


def _word(value: Tensor | int | float | None) -> int:
    if isinstance(value, Tensor):
        assert value.is_contiguous()
        return value.data_ptr()
    if isinstance(value, float):
        return int(ctypes.c_uint64.from_buffer(ctypes.c_double(value)).value)
    return value or 0


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int), ("rest", ctypes.c_char * 60))


class _Launch(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    )


@dataclass(frozen=True)
class KernelSource:
    """A kernel's file, and the macros that it is compiled with. The kernel has the name of the file."""

    path: Path
    macros: Mapping[str, int]

    def compiled(self, capability: tuple[int, int]) -> bytes:
        """The cubin for a GPU, which need not be present; kept in Triton's cache with the kernels of Triton.

        Raises EngineError with the compiler's log, OSError where NVRTC is missing.
        """
        from triton.runtime.cache import get_cache_manager

        major, minor = capability
        folders = self.path.parent, SHARED_HEADERS
        flags = [f"--gpu-architecture=sm_{major}{minor}a", "--std=c++17", "-default-device"]
        flags += [f"-D{macro}={value}" for macro, value in self.macros.items()]
        headers = [path.read_text() for folder in folders for path in sorted(folder.glob("*.h"))]
        contents = [str(torch.version.cuda), *flags, self.path.read_text(), *headers]
        cache = get_cache_manager(hashlib.sha256("\0".join(contents).encode()).hexdigest())
        name = f"{self.path.stem}.cubin"
        if (kept := cache.get_file(name)) is not None:
            return Path(kept).read_bytes()
        image = _compile(self.path.read_text(), [*flags, *(f"-I{folder}" for folder in folders)])
        cache.put(image, name)
        return image


class CudaKernel:
    """One kernel compiled for the current GPU, with one parameter, `Params`."""

    def __init__(
        self,
        source: KernelSource,
        shared_bytes: int,
        *,
        pdl: bool = False,
        cooperative: bool = False,
    ) -> None:
        """`shared_bytes`: dynamic shared memory of a block. Not both of the following.

        `pdl`: starts before the previous kernel has ended and waits for it itself (programmatic dependent launch).
        `cooperative`: its blocks wait for one another, so all of them must run at the same time. Raises EngineError
        where it cannot be compiled or loaded, OSError where the driver or NVRTC is missing.
        """
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._shared_bytes = shared_bytes
        self._attribute = _Attribute(id=COOPERATIVE if cooperative else PROGRAMMATIC_STREAM_SERIALIZATION, value=1)
        self._attribute_count = int(pdl or cooperative)
        image = source.compiled(torch.cuda.get_device_capability())
        # Loading needs a CUDA context, which PyTorch creates with its first tensor.
        torch.zeros(1, device="cuda")
        self._module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._check(self._driver.cuModuleLoadData(ctypes.byref(self._module), image))
        self._check(
            self._driver.cuModuleGetFunction(ctypes.byref(self._function), self._module, source.path.stem.encode())
        )
        self._check(self._driver.cuFuncSetAttribute(self._function, MAX_SHARED_ATTRIBUTE, shared_bytes))

    def launch(self, blocks: int, threads: int, params: PackedArguments) -> None:
        """Launch on the current stream; `params` is copied."""
        config = _Launch(
            grid=(blocks, 1, 1),
            block=(threads, 1, 1),
            shared_bytes=self._shared_bytes,
            stream=torch.cuda.current_stream().cuda_stream,
            attributes=ctypes.pointer(self._attribute),
            attribute_count=self._attribute_count,
        )
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(params))
        self._check(self._driver.cuLaunchKernelEx(ctypes.byref(config), self._function, arguments, None))

    def require_resident(self, clusters: int, blocks: int, threads: int) -> None:
        """Raise EngineError unless `clusters` clusters of a launch with `blocks` blocks can run at the same time."""
        config = _Launch(grid=(blocks, 1, 1), block=(threads, 1, 1), shared_bytes=self._shared_bytes)
        count = ctypes.c_int()
        self._check(
            self._driver.cuOccupancyMaxActiveClusters(ctypes.byref(count), self._function, ctypes.byref(config))
        )
        if count.value < clusters:
            raise EngineError(f"the GPU can run {count.value} clusters at once, the kernel needs {clusters}")

    def _check(self, code: int) -> None:
        if code:
            message = ctypes.c_char_p()
            self._driver.cuGetErrorString(code, ctypes.byref(message))
            raise EngineError(f"CUDA driver error {code}: {(message.value or b'unknown').decode()}")


def _compile(source: str, flags: list[str]) -> bytes:
    """The cubin of a source. Raises EngineError with the compiler's log."""
    compiler = _compiler()
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    array = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
    compiler.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    try:
        if compiler.nvrtcCompileProgram(program, len(flags), array):
            compiler.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            compiler.nvrtcGetProgramLog(program, log)
            raise EngineError(f"kernel did not compile: {log.value.decode()[:2000]}")
        compiler.nvrtcGetCUBINSize(program, ctypes.byref(size))
        image = ctypes.create_string_buffer(size.value)
        compiler.nvrtcGetCUBIN(program, image)
        return image.raw
    finally:
        compiler.nvrtcDestroyProgram(ctypes.byref(program))


def _compiler() -> ctypes.CDLL:
    """NVRTC of PyTorch's CUDA version: from the package installed with PyTorch, else the system's."""
    major = (torch.version.cuda or "").split(".")[0]
    packages = find_spec("nvidia")
    for folder in (packages.submodule_search_locations or []) if packages else []:
        for library in sorted(Path(folder).glob(f"*/lib/libnvrtc.so.{major}")):
            # NVRTC loads this library by name, which finds it only once it is loaded.
            for part in library.parent.glob(f"libnvrtc-builtins.so.{major}*"):
                ctypes.CDLL(str(part))
            return ctypes.CDLL(str(library))
    return ctypes.CDLL(f"libnvrtc.so.{major}")
