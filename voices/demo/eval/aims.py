"""What the voice is to reach, and whether it does."""

from __future__ import annotations

from dataclasses import dataclass

from .figures import NEAR
from .run import Results

SIZE_MB = 48.0
VOICES = 3
RATIO = 1.2
NUMBERS_RATIO = 1.3
RIGHT_CHOICE = 0.99
REAL_TIME_FACTOR = 0.5


@dataclass(frozen=True, slots=True)
class Aim:
    name: str
    wanted: str
    measured: str
    met: bool


def aims(results: Results) -> list[Aim]:
    """Of all voices together; what a run did not measure has no line."""
    overall, each = results.voices[-1], [voice for voice in results.voices if voice.voice != "all"]
    found = [
        Aim("voices in one checkpoint", f"{VOICES}", f"{len(each)}", len(each) >= VOICES),
        Aim("its weights", f"≤ {SIZE_MB:.0f} MB", f"{results.size_mb:.1f} MB", results.size_mb <= SIZE_MB),
    ]
    for name, group, most in (("sentences", "sentences", RATIO), ("numbers", "numbers", NUMBERS_RATIO)):
        if (errors := overall.word_errors.get(group)) is not None:
            measured = f"{errors.ratio:.2f} ({errors.low:.2f} to {errors.high:.2f})"
            found.append(Aim(f"word errors against the source, {name}", f"≤ {most}", measured, errors.ratio <= most))
    if overall.right_choice is not None:
        right = overall.right_choice
        found.append(Aim("right one of 20 sentences", f"≥ {RIGHT_CHOICE:.0%}", f"{right:.1%}", right >= RIGHT_CHOICE))
    failures = len(overall.failed)
    found.append(Aim("failures", "0 of 500 or more", f"{failures} of {overall.utterances}", not failures))
    if ratios := overall.paragraph_ratios:
        near = sum(abs(ratio - 1) <= NEAR for ratio in ratios)
        found.append(
            Aim(
                "ten sentences within 10 % of the source's duration",
                "all",
                f"{near} of {len(ratios)}",
                near == len(ratios),
            )
        )
    found.append(Aim("first sound within two frames", "all", f"{overall.lead_near:.2%}", overall.lead_near == 1))
    if results.speed is not None:
        factor = results.speed.real_time_factor
        found.append(
            Aim("real-time factor on one core", f"≤ {REAL_TIME_FACTOR}", f"{factor:.2f}", factor <= REAL_TIME_FACTOR)
        )
    return found
