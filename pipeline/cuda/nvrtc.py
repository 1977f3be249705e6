"""CUDA C++ compiled when it is loaded, by the compiler library that PyTorch brings along; no CUDA toolkit is needed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from ..errors import EngineError

COOPERATIVE, PROGRAMMATIC_STREAM_SERIALIZATION = 2, 6
"""CU_LAUNCH_ATTRIBUTE_COOPERATIVE, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION."""
MAX_SHARED_ATTRIBUTE, CARVEOUT_ATTRIBUTE = 8, 9
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT."""


def supported() -> bool:
    """Whether the current GPU is of the kind the kernels are written for (Hopper, or later)."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)


Words = ctypes.Array[ctypes.c_uint64]
Launch = Callable[[int, int, Words], None]
"""Of so many blocks of so many threads, with a kernel's argument."""


def words(*values: Tensor | int | float | None) -> Words:
    """A kernel's argument: where tensors are, and numbers, of 8 bytes each."""
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


class CudaKernel:
    """One kernel of a source, for this GPU. It takes a single argument, a block of words."""

    def __init__(
        self,
        source: Path,
        macros: Mapping[str, int],
        shared_bytes: int,
        *,
        early: bool = False,
        at_once: bool = False,
    ) -> None:
        """The kernel has its file's name. `shared_bytes`: of dynamic shared memory, that every block gets; `early`: it
        begins before the kernel ahead of it has ended, and waits by itself; `at_once`: its blocks wait for one another,
        so all of them must run side by side.

        Not both. Raises EngineError where it cannot be built.
        """
        major, minor = torch.cuda.get_device_capability()
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._shared_bytes = shared_bytes
        self._attribute = _Attribute(id=COOPERATIVE if at_once else PROGRAMMATIC_STREAM_SERIALIZATION, value=1)
        self._attribute_count = int(early or at_once)
        options = [f"-D{macro}={value}" for macro, value in macros.items()]
        image = _compile(source.read_text(), [*options, f"-I{source.parent}"], f"sm_{major}{minor}a")
        # Loading needs the context that PyTorch makes with its first tensor.
        torch.zeros(1, device="cuda")
        self._module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._check(self._driver.cuModuleLoadData(ctypes.byref(self._module), image))
        self._check(self._driver.cuModuleGetFunction(ctypes.byref(self._function), self._module, source.stem.encode()))
        self._check(self._driver.cuFuncSetAttribute(self._function, MAX_SHARED_ATTRIBUTE, shared_bytes))

    def launch(self, blocks: int, threads: int, argument: Words) -> None:
        """Queue it on the current stream; `argument` is copied."""
        config = _Launch(
            grid=(blocks, 1, 1),
            block=(threads, 1, 1),
            shared_bytes=self._shared_bytes,
            stream=torch.cuda.current_stream().cuda_stream,
            attributes=ctypes.pointer(self._attribute),
            attribute_count=self._attribute_count,
        )
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
        self._check(self._driver.cuLaunchKernelEx(ctypes.byref(config), self._function, arguments, None))

    def share_most(self) -> None:
        """Have most of the first level cache as shared memory, so that blocks of other kernels fit beside its own."""
        self._check(self._driver.cuFuncSetAttribute(self._function, CARVEOUT_ATTRIBUTE, 100))

    def clusters_at_once(self, blocks: int, threads: int) -> int:
        """How many clusters of so many blocks the GPU can run side by side."""
        config = _Launch(grid=(blocks, 1, 1), block=(threads, 1, 1), shared_bytes=self._shared_bytes)
        count = ctypes.c_int()
        self._check(
            self._driver.cuOccupancyMaxActiveClusters(ctypes.byref(count), self._function, ctypes.byref(config))
        )
        return count.value

    def _check(self, code: int) -> None:
        if code:
            message = ctypes.c_char_p()
            self._driver.cuGetErrorString(code, ctypes.byref(message))
            raise EngineError(f"the GPU's driver refused a kernel: {(message.value or b'?').decode()} ({code})")


def _compile(source: str, options: list[str], architecture: str) -> bytes:
    compiler = _compiler()
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    flags = [f"--gpu-architecture={architecture}", "--std=c++17", "-default-device", *options]
    array = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
    compiler.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    try:
        if compiler.nvrtcCompileProgram(program, len(flags), array):
            compiler.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            compiler.nvrtcGetProgramLog(program, log)
            raise EngineError(f"a kernel did not compile: {log.value.decode()[:2000]}")
        compiler.nvrtcGetCUBINSize(program, ctypes.byref(size))
        image = ctypes.create_string_buffer(size.value)
        compiler.nvrtcGetCUBIN(program, image)
        return image.raw
    finally:
        compiler.nvrtcDestroyProgram(ctypes.byref(program))


def _compiler() -> ctypes.CDLL:
    """NVRTC of PyTorch's CUDA version: from the package that came with PyTorch, else the system's."""
    major = (torch.version.cuda or "").split(".")[0]
    packages = find_spec("nvidia")
    for folder in (packages.submodule_search_locations or []) if packages else []:
        for library in sorted(Path(folder).glob(f"*/lib/libnvrtc.so.{major}")):
            # It looks for this one by name only, not in its own folder.
            for part in library.parent.glob(f"libnvrtc-builtins.so.{major}*"):
                ctypes.CDLL(str(part))
            return ctypes.CDLL(str(library))
    return ctypes.CDLL(f"libnvrtc.so.{major}")
