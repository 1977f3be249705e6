"""Targets of the voice, and results as JSON and as Markdown tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from . import plan as texts
from .figures import EVERYTHING, NEAR, LongTextFigures, MosFigures, SourceFigures, SpeakerFigures, WordErrors
from .run import REFERENCE, Results, SweepRow

SIZE_MB = 55.0
VOICES = 4
MOS = 4.2
MOS_BELOW_SOURCE = 0.3
SENTENCE_ERRORS = 0.015
ERRORS_ABOVE_SOURCE = 0.015
"""Of the kinds of text other than sentences."""
FAILURES_OF = 2000
REAL_TIME_FACTOR = 0.5
WORD_TIMES_MS = 20


@dataclass(frozen=True, slots=True)
class Target:
    """A figure with the value wanted and the value measured."""

    name: str
    wanted: str
    measured: str
    met: bool


def targets(results: Results) -> list[Target]:
    """Targets over all voices; those that the run did not measure are left out."""
    overall, each = results.voices[-1], [voice for voice in results.voices if voice.voice != "all"]
    found = [
        Target("voices in one checkpoint", f"{VOICES}", f"{len(each)}", len(each) >= VOICES),
        Target("its weights", f"≤ {SIZE_MB:.0f} MB", f"{results.size_mb:.1f} MB", results.size_mb <= SIZE_MB),
    ]
    scores = {voice.voice: voice.mos[EVERYTHING] for voice in each}
    worst = min(scores, key=lambda voice: scores[voice].voice)
    below = max(scores, key=lambda voice: scores[voice].source - scores[voice].voice)
    gap = scores[below].source - scores[below].voice
    least = scores[worst].voice
    found.append(Target(f"opinion score, lowest: {worst}", f"≥ {MOS}", f"{least:.2f}", least >= MOS))
    found.append(
        Target(f"below the source's, most: {below}", f"≤ {MOS_BELOW_SOURCE}", f"{gap:.2f}", gap <= MOS_BELOW_SOURCE)
    )
    if (errors := overall.word_errors.get(texts.SENTENCES)) is not None:
        share = errors.voice
        found.append(
            Target("word errors, sentences", f"≤ {SENTENCE_ERRORS:.1%}", f"{share:.1%}", share <= SENTENCE_ERRORS)
        )
    others = {name: overall.word_errors[name] for name in _OTHER_SETS if name in overall.word_errors}
    if others:
        most = max(others, key=lambda name: others[name].voice - others[name].source)
        more = others[most].voice - others[most].source
        wanted = f"≤ {100 * ERRORS_ABOVE_SOURCE:.1f} points"
        measured = f"{100 * more:.1f} points"
        found.append(
            Target(f"word errors above the source's, most: {most}", wanted, measured, more <= ERRORS_ABOVE_SOURCE)
        )
    failures, count = len(overall.failed), overall.utterances
    none = not failures and count >= FAILURES_OF
    found.append(Target("failures", f"0 of {FAILURES_OF:,} or more", f"{failures} of {count:,}", none))
    if ratios := overall.paragraph_ratios:
        near = sum(abs(ratio - 1) <= NEAR for ratio in ratios)
        found.append(
            Target(
                "ten sentences within 10 % of the source's duration",
                "all",
                f"{near} of {len(ratios)}",
                near == len(ratios),
            )
        )
    found.append(
        Target("first sound within two frames", "all", f"{overall.first_sound_near:.2%}", overall.first_sound_near == 1)
    )
    for name, times in (("heart", results.own_word_times), ("heart's teacher", results.word_times)):
        if times is not None:
            median = times.median_ms
            measured = f"{median:.0f} ms (90 %: {times.p90_ms:.0f} ms)"
            met = median <= WORD_TIMES_MS
            found.append(Target(f"starts of words, median error ({name})", f"≤ {WORD_TIMES_MS} ms", measured, met))
    if results.speed is not None:
        factor = results.speed.real_time_factor
        found.append(
            Target("real-time factor on one core", f"≤ {REAL_TIME_FACTOR}", f"{factor:.2f}", factor <= REAL_TIME_FACTOR)
        )
    return found


_OTHER_SETS = tuple(name for name in texts.SETS if name != texts.SENTENCES)
_SETS = (*texts.SETS, EVERYTHING)


def write(path: Path, text: str) -> None:
    """Write a text file, creating its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.rstrip("\n") + "\n", encoding="utf-8")


def as_json(results: Results) -> str:
    """The results as JSON."""
    return json.dumps(asdict(results), indent=2)


def tables(results: Results) -> str:
    """All tables."""
    parts = [targets_table(results), mos_table(results), word_error_table(results), speech_table(results)]
    if results.arrivals:
        parts.append(arrival_table(results))
    return "\n\n".join(parts)


def targets_table(results: Results) -> str:
    """The targets and whether they are met."""
    rows = [(target.name, target.wanted, target.measured, "✓" if target.met else "✗") for target in targets(results)]
    return table(("", "target", "measured", ""), rows)


def mos_table(results: Results) -> str:
    """Each voice's predicted opinion scores: mean, lowest twentieth, and the source's mean."""
    reference = results.reference.mos if results.reference else None
    rows = [
        (name, *(_mos(voice.mos.get(name)) for voice in results.voices), *_reference(reference, name, ".2f"))
        for name in _SETS
    ]
    scored = (voice.mos[EVERYTHING].utterances for voice in results.voices)
    rows.append(("utterances scored", *map(str, scored), *([""] if reference else [])))
    return table(("opinion score", *(voice.voice for voice in results.voices), *_reference_name(results)), rows)


def word_error_table(results: Results) -> str:
    """Each voice's word error rates with their intervals, and the source's."""
    reference = results.reference.word_errors if results.reference else None
    rows = [
        (name, *(_errors(voice.word_errors.get(name)) for voice in results.voices), *_reference(reference, name, ".1%"))
        for name in _SETS
    ]
    if results.codec:
        cells = (_codec(results.codec.get(voice.voice)) for voice in results.voices)
        rows.append(("sentences, codec alone", *cells, *([""] if reference else [])))
    return table(("word errors", *(voice.voice for voice in results.voices), *_reference_name(results)), rows)


def speech_table(results: Results) -> str:
    """Failures, durations and speaking rates."""
    voices = results.voices
    rows = [
        ("utterances", *(str(voice.utterances) for voice in voices)),
        ("more than half the words lost", *(str(voice.lost) for voice in voices)),
        ("words said twice", *(str(voice.said_twice) for voice in voices)),
        ("did not end by itself", *(str(voice.unended) for voice in voices)),
        ("duration ratio", *(f"{voice.duration_ratio:.3f} ± {voice.duration_spread:.3f}" for voice in voices)),
        ("within 10 % of the source", *(_share(voice.duration_near) for voice in voices)),
        ("paragraphs' ratios", *(_range(voice.paragraph_ratios) for voice in voices)),
        (
            "first sound, ms: median, 95 %, most",
            *(
                f"{v.leading_silence_ms_median:.0f}, {v.leading_silence_ms_p95:.0f}, {v.leading_silence_ms_max:.0f}"
                for v in voices
            ),
        ),
        ("within two frames", *(_share(voice.first_sound_near) for voice in voices)),
        ("words a second (source)", *(f"{v.words_per_s:.2f} ({v.source_words_per_s:.2f})" for v in voices)),
        ("ten sentences: change of level, dB (source)", *(_drift(voice.long, most=False) for voice in voices)),
        ("most (source)", *(_drift(voice.long, most=True) for voice in voices)),
        ("ten sentences: least similarity of end and beginning (source)", *(_kept(voice.long) for voice in voices)),
    ]
    if results.speakers:
        of = [results.speakers.get(voice.voice) for voice in voices]
        rows.append(("similarity to the source (source to itself)", *map(_similarity, of)))
        rows.append(("to the source of the most similar other voice", *(_other(one) for one in of)))
        rows.append(("most similar to its own source", *(_share(one.right if one else None) for one in of)))
    return table(("", *(voice.voice for voice in voices)), rows)


def arrival_table(results: Results) -> str:
    """Figures for text that arrives word by word."""
    rows = [
        (
            f"{row.words_per_s:g}",
            f"{row.speech_words_per_s:.2f}",
            f"{row.pauses:.1%}",
            f"{row.heard_words_per_s:.2f}",
            f"{row.waits:.1f}",
            f"{row.wait_s:.2f}",
            f"{row.first_sound_s:.2f}",
        )
        for row in results.arrivals
    ]
    head = (
        "text, words/s",
        "words/s in the sound",
        "of it pauses",
        "words/s heard",
        "waits",
        "s waited",
        "first sound, s",
    )
    return table(head, rows)


def sources_table(sources: Mapping[str, SourceFigures]) -> str:
    """Word errors and opinion scores of the source voices."""
    rows = [
        (group, *(f"{of.word_errors.get(group, 0):.1%}, {of.mos.get(group, 0):.2f}" for of in sources.values()))
        for group in _SETS
    ]
    return table(("word errors, opinion score", *sources), rows)


def sweep_table(rows: Sequence[SweepRow]) -> str:
    """Figures by temperatures."""
    cells = []
    for row in rows:
        of = row.figures
        cells.append(
            (
                *("all" if value is None else f"{value:g}" for value in (row.temperature, row.predictor_temperature)),
                *(_errors(of.word_errors.get(group)) for group in (EVERYTHING, "sentences", "numbers")),
                _mos(of.mos.get(EVERYTHING)),
                str(of.unended),
                str(of.lost),
                f"{of.duration_ratio:.3f} ± {of.duration_spread:.3f}",
            )
        )
    head = (
        "talker",
        "predictor",
        "everything",
        "sentences",
        "numbers",
        "opinion score",
        "no end",
        "lost",
        "duration ratio",
    )
    return table(head, cells)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _errors(found: WordErrors | None) -> str:
    if found is None:
        return ""
    return f"{found.voice:.1%} ({found.low:.1%} to {found.high:.1%}); source {found.source:.1%}"


def _mos(found: MosFigures | None) -> str:
    return "" if found is None else f"{found.voice:.2f} (lowest 5 %: {found.worst:.2f}); source {found.source:.2f}"


def _codec(found: tuple[WordErrors, MosFigures | None] | None) -> str:
    if found is None:
        return ""
    errors, scores = found
    return _errors(errors) + (f"; opinion score {scores.voice:.2f}" if scores else "")


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _drift(found: LongTextFigures | None, *, most: bool) -> str:
    if found is None:
        return ""
    voice, source = found.drift_db, found.source_drift_db
    if most:
        voice, source = found.most_drift_db, found.source_most_drift_db
    return f"{voice:.1f} ({source:.1f})"


def _kept(found: LongTextFigures | None) -> str:
    return "" if found is None else f"{found.speaker_kept:.2f} ({found.source_speaker_kept:.2f})"


def _similarity(found: SpeakerFigures | None) -> str:
    return "" if found is None else f"{found.voice:.2f} ({found.source:.2f})"


def _other(found: SpeakerFigures | None) -> str:
    return "" if found is None or found.other is None else f"{found.other:.2f}"


def _reference_name(results: Results) -> list[str]:
    return [f"flite's {REFERENCE}"] if results.reference else []


def _reference(figures: Mapping[str, float] | None, name: str, form: str) -> list[str]:
    """The cell of the reference voice, if there is one."""
    if figures is None:
        return []
    return [format(figures[name], form) if name in figures else ""]


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}" if values else ""
