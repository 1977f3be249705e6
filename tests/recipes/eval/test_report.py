"""Targets and tables."""

from __future__ import annotations

from dataclasses import replace

from eval.figures import VoiceFigures, WordErrors
from eval.plan import QUICK
from eval.report import tables, targets
from eval.run import Results
from eval.speed import SynthesisSpeed

ERRORS = WordErrors(200, 2000, 0.11, 0.1, 1.1, 1.0, 1.2)
GOOD = VoiceFigures(
    voice="slt",
    word_errors={"sentences": ERRORS, "numbers": ERRORS},
    right_choice=1.0,
    source_right_choice=1.0,
    choices=600,
    utterances=800,
    unended=0,
    lost=0,
    duration_ratio=1.0,
    duration_spread=0.03,
    duration_near=0.99,
    paragraphs=2,
    paragraph_ratios=[0.95, 1.05],
    leading_silence_ms_median=100,
    leading_silence_ms_p95=130,
    leading_silence_ms_max=150,
    first_sound_near=1.0,
    words_per_s=3.4,
    source_words_per_s=3.5,
    failed=[],
)
SPEED = SynthesisSpeed(0.4, 0.38, 30.0)
ALL = [replace(GOOD, voice=voice) for voice in ("slt", "rms", "awb", "all")]
RESULTS = Results((0.6, 0.6), QUICK, 47.0, ALL, {}, {}, [], SPEED)


def unmet(results: Results) -> list[str]:
    return [target.name for target in targets(results) if not target.met]


def changed(**facts: object) -> Results:
    return replace(RESULTS, voices=[*ALL[:3], replace(ALL[3], **facts)])


def test_good_voice_meets_every_target() -> None:
    assert unmet(RESULTS) == []
    assert len(targets(RESULTS)) == 9


def test_each_target_can_be_missed() -> None:
    bad = replace(ERRORS, ratio=1.25)
    assert unmet(replace(RESULTS, size_mb=48.5)) == ["its weights"]
    assert unmet(replace(RESULTS, voices=[ALL[0], ALL[3]])) == ["voices in one checkpoint"]
    assert unmet(changed(word_errors={"sentences": bad, "numbers": bad})) == [
        "word errors against the source, sentences"
    ]
    assert unmet(changed(word_errors={"sentences": ERRORS, "numbers": replace(ERRORS, ratio=1.31)})) == [
        "word errors against the source, numbers"
    ]
    assert unmet(changed(right_choice=0.98)) == ["right one of 20 sentences"]
    assert unmet(changed(failed=["lost"])) == ["failures"]
    assert unmet(changed(paragraph_ratios=[1.0, 1.11])) == ["ten sentences within 10 % of the source's duration"]
    assert unmet(changed(first_sound_near=0.999)) == ["first sound within two frames"]
    assert unmet(replace(RESULTS, speed=SynthesisSpeed(0.51, 0.5, 30.0))) == ["real-time factor on one core"]


def test_unmeasured_figures_are_left_out() -> None:
    shown = tables(replace(RESULTS, voices=[GOOD], speed=None))
    assert "| word errors | slt |\n" in shown
    assert "real-time" not in shown
    assert "| sentences | 1.10 (1.00 to 1.20): 0.110 / 0.100 |" in shown
