"""The command behind `scripts/scorecard`: runs rows, keeps their records, prints the card."""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

from .card import Row, Tier, all_rows
from .one import Options
from .record import Record, append, card, commit, latest, read
from .runner import run_row

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "build" / "scorecard.jsonl"


def main() -> int:
    parsed = _parser().parse_args()
    rows = _chosen(all_rows(), parsed.rows, Tier(parsed.tier))
    records = latest(read(parsed.records))
    if parsed.show:
        print(card(all_rows().values(), records))
        return 0
    options = Options(parsed.tier, parsed.seed, parsed.scale, not parsed.untimed)
    todo = [row for row in rows if not (parsed.resume and _is_done(records.get(row.id), options))]
    _say(f"{len(todo)} rows, about {sum(_about_s(row, options, records) for row in todo) / 60:.0f} min")
    for row in todo:
        _say(f"{row.id} {row.test} (about {_about_s(row, options, records):.0f} s)")
        record = run_row(row, options)
        append(parsed.records, record)
        records[row.id] = record
        _say(f"{row.id} {record.verdict} after {record.seconds:.0f} s" + "".join(f"\n    {m}" for m in record.missed))
    print(card(rows, records))
    return 1 if any(records[row.id].verdict != "green" for row in rows) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/scorecard", description="Measures the promises of docs/reliability.md."
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help="rows such as S2 or C; all that the tier has by default")
    parser.add_argument("--tier", choices=[*Tier], default="L", help="how much: light, nightly, release")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="replays what a row did at random")
    parser.add_argument("--scale", type=float, default=1.0, metavar="X", help="multiplies every size, to try a row out")
    parser.add_argument("--untimed", action="store_true", help="no quiet gate; figures of time are not judged")
    parser.add_argument(
        "--resume", action="store_true", help="leave out rows that this commit already has a result for"
    )
    parser.add_argument("--show", action="store_true", help="print the card of the last results; run nothing")
    parser.add_argument(
        "--records", type=Path, default=RECORDS, metavar="FILE", help="one JSON line a row (%(default)s)"
    )
    return parser


def _chosen(rows: dict[str, Row], named: list[str], tier: Tier) -> list[Row]:
    """Rows by id or by section; a row that is named runs in its own first tier if that is a heavier one."""
    if not named:
        return [row for row in rows.values() if row.runs_in(tier)]
    for name in named:
        if name not in rows and name not in "SCFAE":
            sys.exit(f"no row {name!r}; there are {', '.join(rows)}, and S, C, F, A, E for whole sections")
    return [row for row in rows.values() if (row.id in named or row.id[0] in named) and row.runs_in(tier)]


def _is_done(record: Record | None, options: Options) -> bool:
    return (
        record is not None
        and record.verdict != "void"
        and (record.commit, record.tier, record.scale) == (commit(), options.tier, options.scale)
        and record.timed >= options.judge_time
    )


def _about_s(row: Row, options: Options, records: dict[str, Record]) -> float:
    known = records.get(row.id)
    if known is not None and (known.tier, known.scale) == (options.tier, options.scale):
        return known.seconds
    return row.estimate_s(Tier(options.tier)) * min(1.0, options.scale) + 10 * (row.timed and options.judge_time)


def _say(text: str) -> None:
    print(f"scorecard: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
