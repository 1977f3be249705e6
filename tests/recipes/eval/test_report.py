"""Targets and tables."""

from __future__ import annotations

from dataclasses import replace

from eval.figures import LongTextFigures, MosFigures, SourceFigures, SpeakerFigures, VoiceFigures, WordErrors
from eval.plan import QUICK
from eval.report import tables, targets
from eval.run import Results
from eval.speed import SynthesisSpeed
from eval.word_times import WordTimeFigures

ERRORS = WordErrors(200, 2000, 0.012, 0.01, 0.014, 0.003)
SCORES = MosFigures(800, 4.4, 4.1, 4.6)
GOOD = VoiceFigures(
    voice="heart",
    word_errors={"sentences": ERRORS, "times": ERRORS},
    mos={"everything": SCORES},
    utterances=2000,
    unended=0,
    lost=0,
    said_twice=0,
    duration_ratio=1.0,
    duration_spread=0.03,
    duration_near=0.99,
    paragraphs=2,
    paragraph_ratios=[0.95, 1.05],
    long=LongTextFigures(2, 0.4, 0.7, 0.3, 0.5, 0.93, 0.95),
    leading_silence_ms_median=100,
    leading_silence_ms_p95=130,
    leading_silence_ms_max=150,
    first_sound_near=1.0,
    words_per_s=3.4,
    source_words_per_s=3.5,
    failed=[],
)
SPEED = SynthesisSpeed(0.4, 0.38, 30.0)
ALL = [replace(GOOD, voice=voice) for voice in ("a", "b", "c", "d", "all")]
RESULTS = Results((0.6, 0.6), QUICK, 54.0, ALL, {}, None, {}, {}, WordTimeFigures(600, 18, 45, -3), None, [], SPEED)


def unmet(results: Results) -> list[str]:
    return [target.name for target in targets(results) if not target.met]


def changed(**facts: object) -> Results:
    return replace(RESULTS, voices=[*ALL[:-1], replace(ALL[-1], **facts)])


def test_good_voice_meets_every_target() -> None:
    assert unmet(RESULTS) == []
    assert len(targets(RESULTS)) == 11


def test_each_target_can_be_missed() -> None:
    assert unmet(replace(RESULTS, size_mb=55.5)) == ["its weights"]
    assert unmet(replace(RESULTS, voices=[ALL[0], ALL[-1]])) == ["voices in one checkpoint"]
    for scores, missed in (
        (MosFigures(800, 4.19, 4.0, 4.4), "opinion score, lowest: b"),
        (MosFigures(800, 4.3, 4.0, 4.65), "below the source's, most: b"),
    ):
        worse = replace(ALL[1], mos={"everything": scores})
        assert unmet(replace(RESULTS, voices=[ALL[0], worse, *ALL[2:]])) == [missed]
    for name, missed in (
        ("sentences", "word errors, sentences"),
        ("times", "word errors above the source's, most: times"),
    ):
        assert unmet(changed(word_errors=ALL[-1].word_errors | {name: replace(ERRORS, voice=0.019)})) == [missed]
    assert unmet(changed(failed=["lost"])) == ["failures"]
    assert unmet(changed(utterances=1999)) == ["failures"]
    assert unmet(changed(paragraph_ratios=[1.0, 1.11])) == ["ten sentences within 10 % of the source's duration"]
    assert unmet(changed(first_sound_near=0.999)) == ["first sound within two frames"]
    late = replace(RESULTS, word_times=WordTimeFigures(600, 20.5, 45, -3))
    assert unmet(late) == ["starts of words, median error (heart's teacher)"]
    own = replace(RESULTS, own_word_times=WordTimeFigures(600, 20.5, 45, -3))
    assert unmet(own) == ["starts of words, median error (heart)"]
    assert unmet(replace(RESULTS, speed=SynthesisSpeed(0.51, 0.5, 30.0))) == ["real-time factor on one core"]


def test_unmeasured_figures_are_left_out() -> None:
    shown = tables(replace(RESULTS, voices=[GOOD], speed=None))
    assert "| word errors | heart |\n" in shown
    assert "real-time" not in shown
    assert "| sentences | 1.2% (1.0% to 1.4%); source 0.3% |" in shown
    assert "| everything | 4.40 (lowest 5 %: 4.10); source 4.60 |" in shown
    assert "flite" not in shown
    assert "most similar to its own source" not in shown


def test_voices_are_shown_beside_reference_and_other_sources() -> None:
    reference = SourceFigures({"everything": 0.026}, {"everything": 3.1})
    speakers = {voice: SpeakerFigures(0.91, 0.94, 0.7, 0.995) for voice in "abcd"}
    shown = tables(replace(RESULTS, reference=reference, speakers=speakers))
    assert "| opinion score | a | b | c | d | all | flite's rms |" in shown
    assert shown.count("source 4.60 | 3.10 |") == 1
    assert shown.count("source 0.3% |  |") == 2
    assert "| similarity to the source (source to itself) | 0.91 (0.94) | 0.91 (0.94)" in shown
    assert "| most similar to its own source | 99.5% | 99.5% | 99.5% | 99.5% |  |" in shown
    assert "| most (source) | 0.7 (0.5) |" in shown
