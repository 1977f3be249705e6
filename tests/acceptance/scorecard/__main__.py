"""The command behind `scripts/scorecard`: runs rows, keeps their records, prints the card."""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

from .card import SECTIONS, Row, Tier, all_rows
from .one import Options
from .record import Record, append, commit, latest, read
from .runner import run_row
from .table import markdown_card, publish, text_card

ROOT = Path(__file__).parents[3]
RECORDS = ROOT / "build" / "scorecard.jsonl"
DOCUMENT = ROOT / "docs" / "reliability.md"


def main() -> int:
    parsed = _parser().parse_args()
    everything = all_rows()
    records = latest(read(parsed.records))
    if parsed.publish:
        publish(DOCUMENT, markdown_card(everything.values(), records))
    if parsed.show or parsed.publish:
        print(text_card(everything.values(), records))
        return 0
    rows = _chosen(everything, parsed.rows, Tier(parsed.tier))
    wanted = {row.id: _options(row, parsed) for row in rows}
    todo = [row for row in rows if not (parsed.resume and _is_done(records.get(row.id), wanted[row.id]))]
    _say(f"{len(todo)} rows, about {sum(_about_s(row, wanted[row.id], records) for row in todo) / 60:.0f} min")
    for row in todo:
        _say(f"{row.id} {row.test} (about {_about_s(row, wanted[row.id], records):.0f} s)")
        record = run_row(row, wanted[row.id])
        append(parsed.records, record)
        records[row.id] = record
        _say(f"{row.id} {record.verdict} after {record.seconds:.0f} s" + "".join(f"\n    {m}" for m in record.missed))
    print(text_card(rows, records))
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
    parser.add_argument("--publish", action="store_true", help="put that card into docs/reliability.md; run nothing")
    parser.add_argument(
        "--records", type=Path, default=RECORDS, metavar="FILE", help="one JSON line a row (%(default)s)"
    )
    return parser


def _chosen(rows: dict[str, Row], named: list[str], tier: Tier) -> list[Row]:
    """Rows by id, whatever their tier, or the tier's own by section; without a name all of the tier's."""
    for name in named:
        if name not in rows and name not in SECTIONS:
            sys.exit(f"no row {name!r}; there are {', '.join(rows)}, and {', '.join(SECTIONS)} for whole sections")
    return [
        row for row in rows.values() if row.id in named or ((not named or row.id[0] in named) and row.runs_in(tier))
    ]


def _options(row: Row, parsed: argparse.Namespace) -> Options:
    """A row that begins in a heavier tier runs in that."""
    tier = Tier(parsed.tier) if row.runs_in(Tier(parsed.tier)) else row.first_tier
    return Options(tier, parsed.seed, parsed.scale, not parsed.untimed)


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
