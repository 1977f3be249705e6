from __future__ import annotations

from pathlib import Path

from eval.takes import VOICE, Take, TakeKey, TakeLog

TAKE = Take(TakeKey(VOICE, "slt", "hello.", 1, 0.6, 0.45), True, 1.0, 0.1, 0.8, 0.0, "hello", True)
OTHER = Take(TakeKey(VOICE, "slt", "hello.", 2, 0.6, 0.45), False, 2.0, 0.1, 0.8, 0.0, "low", None)


def test_what_was_written_down_is_there_again(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "takes.jsonl"
    ledger = TakeLog(path)
    ledger.add(TAKE)
    ledger.add(OTHER)
    again = TakeLog(path)
    assert list(again) == [TAKE, OTHER]
    assert again[TAKE.said] == TAKE


def test_a_line_cut_off_in_writing_is_made_again_and_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "takes.jsonl"
    ledger = TakeLog(path)
    ledger.add(TAKE)
    ledger.add(OTHER)
    path.write_text(path.read_text()[:-20])
    cut = TakeLog(path)
    assert TAKE.said in cut
    assert OTHER.said not in cut
    cut.add(OTHER)
    assert list(TakeLog(path)) == [TAKE, OTHER]
