"""Publishing figures, samples and spectrograms."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from eval import plan as texts
from eval.publish import (
    BEGIN,
    END,
    README_BEGIN,
    README_END,
    SAMPLES,
    linked,
    replaced,
    samples_line,
    spectrograms,
)
from PIL import Image


def test_figures_between_marks_are_replaced() -> None:
    page = f"# Voice\n\n{BEGIN}\n\nold\n\n{END}\n\nmore\n"
    once = replaced(page, ["new", "figures"])
    assert once == f"# Voice\n\n{BEGIN}\n\nnew\n\nfigures\n\n{END}\n\nmore\n"
    assert replaced(once, ["new", "figures"]) == once


def test_files_of_old_figures_are_known() -> None:
    links = "[source](sounds/rms_0_source.ogg), ![x](images/voice_rms.png)"
    page = f"[a](sounds/kept.ogg) {BEGIN} {links} {END} (images/b.png)"
    assert linked(page) == ["sounds/rms_0_source.ogg", "images/voice_rms.png"]


def test_readme_links_three_samples() -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text("utf-8")
    written = replaced(readme, [samples_line(["ada", "bob", "cleo", "dan"])], README_BEGIN, README_END)
    assert re.findall(r"\((docs/sounds/.*?)\)", written) == [
        f"docs/sounds/{name}_0_voice.ogg" for name in ("ada", "bob", "cleo")
    ]


def test_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks"):
        replaced("# Voice", ["figures"])


def test_samples_are_not_evaluation_texts() -> None:
    measured = {line.spoken for group in texts.SETS for line in texts.load(group)}
    assert not measured & set(map(texts.spoken, SAMPLES))


def test_spectrograms_share_one_scale(tmp_path: Path) -> None:
    time_s = np.arange(24_000) / 24_000
    loud = np.sin(2 * np.pi * 1000 * time_s).astype(np.float32)
    spectrograms([("loud", loud), ("half as long", loud[:12_000] * np.float32(0.03))], tmp_path / "picture.png")
    pixels = np.asarray(Image.open(tmp_path / "picture.png").convert("L"), int)
    assert pixels.shape[1] == 100
    upper, lower = pixels[16:116], pixels[-100:]
    line = 100 - 100 * 1000 // 8000
    assert abs(int(upper[:, 50].argmin()) - line) <= 2
    assert abs(int(lower[:, 25].argmin()) - line) <= 2
    assert upper.min() < lower.min()
    assert lower[:, 75].min() > 240
