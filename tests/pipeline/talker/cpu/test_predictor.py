from __future__ import annotations

from pathlib import Path

import numba
import pytest
from voxgate.pipeline.talker.cpu import predictor as native_frame
from voxgate.pipeline.talker.cpu.predictor import compile_frame, sources_digest


def test_a_frame_is_compiled_anew_when_any_of_its_sources_has_changed(tmp_path: Path) -> None:
    for name in ("sampling.py", "predictor.py", "notes.txt"):
        (tmp_path / name).write_text("once")
    before = sources_digest(tmp_path)
    (tmp_path / "notes.txt").write_text("no source of it")
    assert sources_digest(tmp_path) == before
    (tmp_path / "sampling.py").write_text("changed")
    assert sources_digest(tmp_path) != before


def test_one_that_cannot_be_kept_is_compiled_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kept: list[bool] = []

    class Compiled:
        def compile(self, types: tuple[object, ...]) -> None:
            """In no time."""

        def disable_compile(self) -> None:
            """It takes no other types."""

    def njit(*, cache: bool, **_: object) -> object:
        kept.append(cache)
        if cache:
            raise RuntimeError("no locator available")
        return lambda _: Compiled()

    monkeypatch.setattr(numba, "njit", njit)
    assert isinstance(compile_frame(1), Compiled)
    assert kept == [True, False]
    assert "cannot be cached" in caplog.text
    assert native_frame._frame.__qualname__.startswith("frame_")
