"""The log of measurements."""

from __future__ import annotations

from pathlib import Path

from eval.measurements import VOICE, Measurement, MeasurementLog, UtteranceKey

FIRST = Measurement(
    UtteranceKey(VOICE, "heart", "hello.", 1, 0.6, 0.45), True, 1.0, 0.1, 0.8, 0.0, "hello", 4.5, (0.6, 0.8), 0.9, -0.5
)
OTHER = Measurement(UtteranceKey(VOICE, "heart", "hello.", 2, 0.6, 0.45), False, 2.0, 0.1, 0.8, 0.0, "low")


def test_log_is_read_as_written(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "measurements.jsonl"
    log = MeasurementLog(path)
    log.add(FIRST)
    log.add(OTHER)
    again = MeasurementLog(path)
    assert list(again) == [FIRST, OTHER]
    assert again[FIRST.key] == FIRST


def test_incomplete_last_line_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "measurements.jsonl"
    log = MeasurementLog(path)
    log.add(FIRST)
    log.add(OTHER)
    path.write_text(path.read_text()[:-20])
    cut = MeasurementLog(path)
    assert FIRST.key in cut
    assert OTHER.key not in cut
    cut.add(OTHER)
    assert list(MeasurementLog(path)) == [FIRST, OTHER]
