"""The fingerprint of a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
from eval.command import fingerprint

RULES = '[text]\nspoken_form = "en"\nsegment_tokens = 100\n[voice.ada]\ndescription = "a voice"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "speech_tokenizer").mkdir()
    for name in ("model.safetensors", "speech_tokenizer/model.safetensors", "config.json", "tokenizer.json"):
        (tmp_path / name).write_text(name)
    (tmp_path / "voice.toml").write_text(RULES)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", "other weights"),
        ("speech_tokenizer/model.safetensors", "another codec"),
        ("tokenizer.json", "other tokens"),
        ("voice.toml", RULES.replace("100", "50")),
    ],
)
def test_fingerprint_changes_with_speech(folder: Path, name: str, content: str) -> None:
    before = fingerprint(folder)
    (folder / name).write_text(content)
    assert fingerprint(folder) != before


def test_fingerprint_ignores_descriptions(folder: Path) -> None:
    before = fingerprint(folder)
    (folder / "voice.toml").write_text("# other description\n" + RULES.replace("a voice", "the same voice"))
    assert fingerprint(folder) == before
