from __future__ import annotations

import shutil

import numpy as np
import pytest
from voxgate.benchmarks.words import TEXTS, VOICES, errors_table, read_with_flite, spans_ms, word_time_errors
from voxgate.cli.main import main


def test_unreachable_gateway_is_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "words", "--url", "ws://127.0.0.1:9"]) == 1
    output = capsys.readouterr().err
    assert output.count("\n") == 1
    assert "no gateway runs at ws://127.0.0.1:9" in output


def test_errors_include_word_starts_and_ends() -> None:
    row = word_time_errors([[(0, 100), (100, 400)]], [[(0, 90), (90, 100)]])
    assert (row.words, row.most_ms, row.mean_ms, row.late_ms, row.near) == (2, 300, 80, 80, 0.75)


def test_table_has_every_figure() -> None:
    row = word_time_errors([[(0, 100), (100, 400)]], [[(0, 90), (90, 100)]])
    head, line = errors_table({"word times": row}).splitlines()
    assert line.split() == ["word", "times", "10", "80", "213", "291", "300", "80", "75.0%"]
    assert head.split()[3:] == ["median", "mean", "p90", "p99", "max", "late", "within", "100", "ms"]


@pytest.mark.skipif(shutil.which("flite") is None, reason="flite is not installed")
@pytest.mark.parametrize("voice", VOICES)
def test_every_text_has_a_span_for_each_word(voice: str) -> None:
    for text in TEXTS.read_text("utf-8").splitlines()[VOICES.index(voice) :: len(VOICES)]:
        spans = np.array(read_with_flite(text, voice).spans_ms)
        assert len(spans) == len(text.split())
        assert (np.diff(spans.ravel()) >= 0).all()
        assert (spans[:, 1] - spans[:, 0] >= 20).all()


@pytest.mark.skipif(shutil.which("flite") is None, reason="flite is not installed")
def test_spans_follow_speech_of_varying_speed() -> None:
    reading = read_with_flite("the train leaves at noon", "slt")
    pcm = reading.pcm
    late = np.concatenate([np.zeros(7200, np.float32), pcm, np.zeros(2400, np.float32)])
    assert np.abs(np.array(spans_ms(reading, late)) - np.array(reading.spans_ms) - 300).max() <= 25
    # Every second stretch of 50 ms twice: speech at two thirds of the pace.
    parts = [pcm[at : at + 1200] for at in range(0, len(pcm), 1200)]
    slow = np.concatenate([part for n, part in enumerate(parts) for _ in range(1 + n % 2)])
    want = np.interp(np.array(reading.spans_ms), [0, len(pcm) / 24], [0, len(slow) / 24])
    assert np.abs(np.array(spans_ms(reading, slow)) - want).max() <= 80
