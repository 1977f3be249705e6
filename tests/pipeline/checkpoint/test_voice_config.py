from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError
from voxgate.pipeline.checkpoint.voice_config import FrameLimits, VoiceConfig, load_voice_config


def test_demo_voice_file_is_read(demo_folder: Path) -> None:
    voice = load_voice_config(demo_folder)
    assert (voice.text.spoken_form, voice.text.closing_mark) == ("en", ".")
    assert all(entry.display and entry.description for entry in voice.voice.values())


def test_missing_file_gives_defaults(tmp_path: Path) -> None:
    assert load_voice_config(tmp_path) == VoiceConfig()
    assert VoiceConfig().text.spoken_form is None


def test_unknown_keys_are_refused(tmp_path: Path) -> None:
    (tmp_path / "voice.toml").write_text("[text]\nspokenform = 'en'\n")
    with pytest.raises(ValidationError, match="spokenform"):
        load_voice_config(tmp_path)


def test_frame_limit_is_proportional_to_tokens_above_a_floor() -> None:
    limits = FrameLimits(frames_floor=192, frames_per_token=12)
    assert limits.max_frames(1) == 192
    assert limits.max_frames(100) == 1200
