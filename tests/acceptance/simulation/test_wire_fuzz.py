from __future__ import annotations

import random
import time

from ..scorecard.card import Trial, row
from ..testbed.expected_audio import percentile
from .fuzz import FuzzTarget, fuzz_targets, mutated


@row(
    "S4",
    "wire fuzz in process, all dialects",
    "10^6 inputs, only documented errors, p99 ≤ 200 µs",
    light_s=4,
    nightly_s=70,
    timed=True,
)
def wire_fuzz(trial: Trial) -> None:
    dialects = fuzz_targets()
    each = trial.size(1_000_000, light=10_000) // len(dialects)
    took_us: list[float] = []
    problems: list[str] = []
    for dialect in dialects:
        problems += _fuzz(dialect, each, random.Random(trial.seed), took_us)
    trial.note("inputs", each * len(dialects))
    trial.note("dialects", ", ".join(dialect.name for dialect in dialects))
    trial.equal("undocumented", len(problems), 0)
    trial.missed += problems[:5]
    trial.most("p99 µs", percentile(took_us, 99), 200, timed=True)
    trial.note("max µs", max(took_us))


def _fuzz(dialect: FuzzTarget, inputs: int, chance: random.Random, took_us: list[float]) -> list[str]:
    session, now_s, problems = dialect.open(), 0.0, []
    for _ in range(inputs):
        payload = mutated(chance, dialect.examples)
        now_s += chance.choice([0.0, 0.01, 5.0])
        began_ns = time.perf_counter_ns()
        try:
            session.take(payload, now_s)
        except Exception as escaped:
            problems.append(f"{dialect.name}: {payload[:100]!r} raises {type(escaped).__name__}: {escaped}"[:300])
            session = dialect.open()
            continue
        took_us.append((time.perf_counter_ns() - began_ns) / 1000)
        if problem := session.settle(now_s):
            problems.append(f"{dialect.name}: {payload[:100]!r} brings {problem}")
    return problems
