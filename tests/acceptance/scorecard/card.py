"""A row of the card, and the trial in which it is measured."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Figure = float | int | str | bool


class Tier(StrEnum):
    """How much of a row is run: with every commit, every night, before a release."""

    LIGHT = "L"
    NIGHTLY = "N"
    RELEASE = "R"

    @property
    def rank(self) -> int:
        return "LNR".index(self.value)


@dataclass
class Trial:
    """One run of a row: its sizes come from the tier, and its figures are judged against what is wanted."""

    tier: Tier
    seed: int
    scale: float = 1.0
    """Every size is multiplied by it: below 1 to try a row out."""
    judges_time: bool = True
    """Whether figures of time count: not on a machine that does other things as well."""
    figures: dict[str, Figure] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)

    def size(self, nightly: int, *, light: int | None = None, release: int | None = None, least: int = 1) -> int:
        """How many, by tier and scale, at least `least`."""
        wanted = nightly
        if self.tier is Tier.LIGHT and light is not None:
            wanted = light
        if self.tier is Tier.RELEASE and release is not None:
            wanted = release
        return max(least, round(wanted * self.scale))

    def note(self, name: str, value: Figure) -> None:
        """A figure to be known, not judged."""
        self.figures[name] = round(value, 3) if isinstance(value, float) else value

    def most(self, name: str, value: float, limit: float, *, timed: bool = False) -> None:
        """`value` may be at most `limit`; `timed` when it depends on what else the machine does."""
        self._judge(name, value, value <= limit, f"more than {limit:g}", timed)

    def least(self, name: str, value: float, limit: float, *, timed: bool = False) -> None:
        """`value` has to be at least `limit`."""
        self._judge(name, value, value >= limit, f"less than {limit:g}", timed)

    def equal(self, name: str, value: Figure, wanted: Figure) -> None:
        """`value` has to be `wanted`."""
        self._judge(name, value, value == wanted, f"not {wanted}", timed=False)

    def _judge(self, name: str, value: Figure, reached: bool, why: str, timed: bool) -> None:
        self.note(name, value)
        if not reached and (self.judges_time or not timed):
            self.missed.append(f"{name}: {self.figures[name]} is {why}")


Measure = Callable[[Trial], None] | Callable[[Trial], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Row:
    """One promise. `about_s` is how long it takes by tier; the first tier in it is the first it runs in."""

    id: str
    test: str
    wanted: str
    about_s: dict[Tier, float]
    measure: Measure
    timed: bool
    """Its figures depend on time: the quiet gate comes first."""
    voice: bool
    """It runs the demo voice in the real engine."""

    @property
    def first_tier(self) -> Tier:
        return min(self.about_s, key=lambda tier: tier.rank)

    def runs_in(self, tier: Tier) -> bool:
        return self.first_tier.rank <= tier.rank

    def estimate_s(self, tier: Tier) -> float:
        """The time of the heaviest tier up to `tier` that the row has."""
        return self.about_s[max((t for t in self.about_s if t.rank <= tier.rank), key=lambda t: t.rank)]

    def deadline_s(self, tier: Tier) -> float:
        """When the run is given up; generous, because a deadline is for what hangs."""
        return 3 * self.estimate_s(tier) + 120


SECTIONS = "SCFAE"
ROWS: dict[str, Row] = {}


def row(
    id: str,
    test: str,
    wanted: str,
    *,
    light_s: float | None = None,
    nightly_s: float | None = None,
    release_s: float | None = None,
    timed: bool = False,
    voice: bool = False,
) -> Callable[[Measure], Measure]:
    """Enter a measuring function into the card; the times say which tiers it runs in and for about how long."""
    times = {Tier.LIGHT: light_s, Tier.NIGHTLY: nightly_s, Tier.RELEASE: release_s}

    def enter(measure: Measure) -> Measure:
        about_s = {tier: seconds for tier, seconds in times.items() if seconds is not None}
        ROWS[id] = Row(id, test, wanted, about_s, measure, timed, voice)
        return measure

    return enter


def all_rows() -> dict[str, Row]:
    """Every row in the order of the card."""
    from importlib import import_module

    subjects = (
        "simulation.test_session_walk",
        "simulation.test_simulation",
        "simulation.test_wire_fuzz",
        "test_socket_fuzz",
        "test_audio",
        "test_capacity",
        "test_overload",
        "test_engine_failures",
        "test_shutdown",
        "test_network_faults",
        "test_floods",
        "test_churn",
        "test_access",
        "test_hostile_text",
        "test_soak",
    )

    for subject in subjects:
        import_module(f"acceptance.{subject}")
    return dict(sorted(ROWS.items(), key=lambda item: (SECTIONS.index(item[0][0]), int(item[0][1:]))))
