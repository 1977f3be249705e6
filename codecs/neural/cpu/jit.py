"""How functions are compiled by numba and kept on disk for the next start."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

log = logging.getLogger(__name__)

Function = TypeVar("Function", bound=Callable[..., Any])


def jit(function: Function) -> Function:
    """Compile with numba when compiled code calls it; sums keep their order."""
    return cast(Function, numba.njit(fastmath={"contract"}, error_model="numpy", boundscheck=False)(function))


def jit_fast_sums(function: Function) -> Function:
    """As `jit`, but sums may be split over the lanes of a vector register; NaN and infinity keep their meaning."""
    options = {"reassoc", "contract", "nsz"}
    return cast(Function, numba.njit(fastmath=options, error_model="numpy", boundscheck=False)(function))


def compile_for(function: Callable[..., None], arguments: tuple[Any, ...], digest: str) -> Callable[..., None]:
    """`function` compiled for the types of `arguments`, or loaded from numba's cache on disk; releases the GIL.

    `digest`: of every source that it is compiled from, because numba checks only the file that the function is in.
    Arguments of other types are then an error; compiling for them would take seconds.
    """
    try:
        return _compile(function, arguments, digest)
    except (OSError, RuntimeError) as error:
        log.warning("compiled %s cannot be cached for the next start: %s", function.__name__, error)
        return _compile(function, arguments, None)


def sources_digest(*folders: Path) -> str:
    """Digest of the sources in `folders`. Raises OSError."""
    sources = [source for folder in folders for source in sorted(folder.glob("*.py"))]
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]


def _compile(function: Callable[..., None], arguments: tuple[Any, ...], digest: str | None) -> Callable[..., None]:
    if digest is not None:
        # The cache is keyed by the function's name.
        function.__qualname__ = f"{function.__name__}_{digest}"
    compiled = numba.njit(
        cache=digest is not None, nogil=True, fastmath={"contract"}, error_model="numpy", boundscheck=False
    )(function)
    compiled.compile(tuple(numba.typeof(argument) for argument in arguments))
    compiled.disable_compile()
    return cast(Callable[..., None], compiled)


class Kernel:
    """A function that is compiled with its first call for each dtype, which is that of its first argument."""

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function
        self._compiled: dict[Any, Callable[..., None]] = {}
        self.__doc__ = function.__doc__

    def __call__(self, *arguments: Any) -> None:
        compiled = self._compiled.get(arguments[0].dtype)
        if compiled is None:
            compiled = compile_for(self._function, arguments, sources_digest(Path(__file__).parent))
            self._compiled[arguments[0].dtype] = compiled
        compiled(*arguments)
