"""The scorecard itself: what is judged, what is kept, and that nothing it started survives it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
from acceptance.scorecard.card import Row, Tier, Trial, all_rows
from acceptance.scorecard.one import Options, run
from acceptance.scorecard.record import append, latest, read
from acceptance.scorecard.runner import run_row
from acceptance.scorecard.table import BEGIN, END, markdown_card, publish, text_card
from acceptance.testbed.gateway_process import environment


def row(measure=print, **fields) -> Row:
    return Row(**{"id": "X1", "test": "t", "wanted": "w", "about_s": {Tier.LIGHT: 1.0}, "measure": measure,
                  "timed": False, "voice": False} | fields)  # fmt: skip


def test_a_figure_out_of_its_limits_makes_a_row_red_and_says_why() -> None:
    def measure(trial: Trial) -> None:
        trial.most("gap ms", 90.5, 90)
        trial.least("rate", 2, 1)
        trial.equal("lost", 0, 0)

    record = run(row(measure), Options("L", seed=3))
    assert (record.verdict, record.missed) == ("red", ["gap ms: 90.5 is more than 90"])
    assert record.figures == {"gap ms": 90.5, "rate": 2, "lost": 0}
    assert record.seed == 3


def test_time_is_not_judged_where_other_things_run() -> None:
    def measure(trial: Trial) -> None:
        trial.most("gap ms", 1000.0, 90, timed=True)

    assert run(row(measure, timed=True), Options("L", 0, judge_time=False)).verdict == "green"


def test_an_exception_is_a_red_row() -> None:
    def measure(_: Trial) -> None:
        raise LookupError("gone")

    assert run(row(measure), Options("L", 0)).missed == ["LookupError: gone"]


def test_sizes_follow_the_tier_and_one_factor() -> None:
    assert Trial(Tier.LIGHT, 0).size(500, light=100) == 100
    assert Trial(Tier.NIGHTLY, 0).size(500, light=100) == 500
    assert Trial(Tier.RELEASE, 0).size(500, light=100, release=900) == 900
    assert Trial(Tier.NIGHTLY, 0, scale=0.1).size(500, light=100) == 50
    assert Trial(Tier.NIGHTLY, 0, scale=0.001).size(500, least=2) == 2


def test_a_row_runs_in_its_first_tier_and_all_heavier_ones() -> None:
    nightly = row(about_s={Tier.NIGHTLY: 1.0})
    assert [nightly.runs_in(tier) for tier in Tier] == [False, True, True]


def test_records_are_lines_and_the_last_of_a_row_is_on_the_card(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    for limit in (1, 3):
        append(path, run(row(lambda trial, limit=limit: trial.most("lost | found", 2, limit)), Options("L", 0)))
    path.write_text(path.read_text() + '{"row": "cut sho')
    records = latest(read(path))
    assert records["X1"].verdict == "green"
    lines = markdown_card([row(), row(id="X2")], records).splitlines()
    assert lines[2].split(" | ")[3:] == ["lost / found 2", "green (L) |"]
    assert "not run" in lines[3]
    document = tmp_path / "reliability.md"
    for _ in range(2):
        document.write_text(document.read_text() if document.exists() else f"Before.\n{BEGIN}\nold\n{END}\nAfter.\n")
        publish(document, "\n".join(lines))
    assert document.read_text().splitlines() == ["Before.", BEGIN, *lines, END, "After."]


def test_the_card_fits_a_terminal() -> None:
    long = row(test="word " * 40, wanted="figure " * 20)
    lines = text_card([long], {"X1": run(long, Options("L", 0))}).splitlines()
    assert max(map(len, lines)) <= 130
    assert sum("word" in line for line in lines) > 5


def test_a_row_that_hangs_is_ended_with_all_it_started(monkeypatch) -> None:
    hangs = row(id="S1", about_s={Tier.LIGHT: 1.0})
    monkeypatch.setattr(Row, "deadline_s", lambda *_: 0.0)
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    record = run_row(hangs, Options("L", 0))
    assert (record.verdict, record.missed) == ("red", ["not done after 0 s"])
    assert {process.pid for process in psutil.Process().children(recursive=True)} <= before


def test_a_process_finds_the_card_without_being_told_where(monkeypatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    subprocess.run([sys.executable, "-c", "import acceptance, fakes"], env=environment(), check=True, timeout=60)


def test_every_row_of_the_card_is_there() -> None:
    wanted = [
        f"{section}{n}" for section, last in zip("SCFAE", (7, 7, 7, 9, 1), strict=True) for n in range(1, last + 1)
    ]
    assert [id for id in all_rows() if id not in wanted] == []
