"""Targets of the voice, and results as JSON and as Markdown tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from . import plan as texts
from .figures import NEAR, WordErrors
from .run import Results, SweepRow

SIZE_MB = 48.0
VOICES = 3
RATIO = 1.2
NUMBERS_RATIO = 1.3
RIGHT_CHOICE = 0.99
REAL_TIME_FACTOR = 0.5


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
    for name, group, most in (("sentences", "sentences", RATIO), ("numbers", "numbers", NUMBERS_RATIO)):
        if (errors := overall.word_errors.get(group)) is not None:
            measured = f"{errors.ratio:.2f} ({errors.low:.2f} to {errors.high:.2f})"
            found.append(Target(f"word errors against the source, {name}", f"≤ {most}", measured, errors.ratio <= most))
    if overall.right_choice is not None:
        right = overall.right_choice
        found.append(
            Target("right one of 20 sentences", f"≥ {RIGHT_CHOICE:.0%}", f"{right:.1%}", right >= RIGHT_CHOICE)
        )
    failures = len(overall.failed)
    found.append(Target("failures", "0 of 500 or more", f"{failures} of {overall.utterances}", not failures))
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
    if results.speed is not None:
        factor = results.speed.real_time_factor
        found.append(
            Target("real-time factor on one core", f"≤ {REAL_TIME_FACTOR}", f"{factor:.2f}", factor <= REAL_TIME_FACTOR)
        )
    return found


_SETS = ("sentences", "sentences of known words", "numbers", *texts.NUMBERS, texts.NAMES, texts.PARAGRAPHS)


def write(path: Path, text: str) -> None:
    """Write a text file, creating its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.rstrip("\n") + "\n", encoding="utf-8")


def as_json(results: Results) -> str:
    """The results as JSON."""
    return json.dumps(asdict(results), indent=2)


def tables(results: Results) -> str:
    """All tables."""
    parts = [targets_table(results), word_error_table(results), speech_table(results)]
    if results.arrivals:
        parts.append(arrival_table(results))
    return "\n\n".join(parts)


def targets_table(results: Results) -> str:
    """The targets and whether they are met."""
    rows = [(target.name, target.wanted, target.measured, "✓" if target.met else "✗") for target in targets(results)]
    return table(("", "target", "measured", ""), rows)


def word_error_table(results: Results) -> str:
    """Each voice's ratio of word errors with its interval, and both error rates."""
    rows = [(name, *(_errors(voice.word_errors.get(name)) for voice in results.voices)) for name in _SETS]
    if results.codec:
        rows.append(("sentences, codec alone", *(_errors(results.codec.get(voice.voice)) for voice in results.voices)))
    return table(("word errors", *(voice.voice for voice in results.voices)), rows)


def speech_table(results: Results) -> str:
    """Recognition, failures, durations and speaking rates."""
    voices = results.voices
    rows = [
        ("right one of 20", *(f"{_share(voice.right_choice)} of {voice.choices}" for voice in voices)),
        ("the source's", *(_share(voice.source_right_choice) for voice in voices)),
        ("utterances", *(str(voice.utterances) for voice in voices)),
        ("more than half the words lost", *(str(voice.lost) for voice in voices)),
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
    ]
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


def sources_table(sources: Mapping[str, Mapping[str, float]]) -> str:
    """Word errors of the source voices."""
    return table(
        ("word errors", *sources),
        [(group, *(f"{errors.get(group, 0):.3f}" for errors in sources.values())) for group in texts.SETS],
    )


def sweep_table(rows: Sequence[SweepRow]) -> str:
    """Figures by temperatures."""
    cells = []
    for row in rows:
        of = row.figures
        cells.append(
            (
                *("all" if value is None else f"{value:g}" for value in (row.temperature, row.predictor_temperature)),
                *(_errors(of.word_errors.get(group)) for group in ("everything", "sentences", "numbers")),
                _share(of.right_choice),
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
        "one of 20",
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
    return f"{found.ratio:.2f} ({found.low:.2f} to {found.high:.2f}): {found.voice:.3f} / {found.source:.3f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}" if values else ""
