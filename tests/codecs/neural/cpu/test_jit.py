from __future__ import annotations

from pathlib import Path

import numba
import numpy as np
import pytest
from voxgate.codecs.neural.cpu.jit import Kernel, compile_for, sources_digest


def test_digest_changes_with_any_python_source(tmp_path: Path) -> None:
    for name in ("sampling.py", "predictor.py", "notes.txt"):
        (tmp_path / name).write_text("before")
    before = sources_digest(tmp_path)
    (tmp_path / "notes.txt").write_text("changed")
    assert sources_digest(tmp_path) == before
    (tmp_path / "sampling.py").write_text("changed")
    assert sources_digest(tmp_path) != before


def test_function_is_compiled_without_cache_where_caching_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: list[bool] = []

    class FakeDispatcher:
        def compile(self, types: tuple[object, ...]) -> None:
            """Compiles nothing."""

        def disable_compile(self) -> None:
            """Changes nothing."""

    def njit(*, cache: bool, **_: object) -> object:
        attempts.append(cache)
        if cache:
            raise RuntimeError("no locator available")
        return lambda _: FakeDispatcher()

    monkeypatch.setattr(numba, "njit", njit)

    def double(x: int) -> None:
        """Is not compiled."""

    assert isinstance(compile_for(double, (1,), "digest"), FakeDispatcher)
    assert attempts == [True, False]
    assert "cannot be cached" in caplog.text
    assert double.__qualname__ == "double_digest"


def test_kernel_is_compiled_once_for_each_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[object] = []

    def compile_for(_function: object, arguments: tuple[np.ndarray], _digest: str) -> object:
        compiled.append(arguments[0].dtype)
        return lambda x: x.fill(len(compiled))

    monkeypatch.setattr("voxgate.codecs.neural.cpu.jit.compile_for", compile_for)

    def kernel_of(x: np.ndarray) -> None:
        """Is not compiled."""

    kernel = Kernel(kernel_of)
    single, double = np.zeros(1, np.float32), np.zeros(1)
    for x in (single, double, single):
        kernel(x)
    assert compiled == [np.float32, np.float64]
    assert (single[0], double[0]) == (2, 2)
