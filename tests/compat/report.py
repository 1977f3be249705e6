"""Writes docs/compatibility.md to standard output, from the results of tests/compat/test_compat.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from compat.clients import CLIENTS, RESULTS
from compat.scenarios import SCENARIOS

INTRODUCTION = """\
# What works with which client

Written by `scripts/test-compat`, which runs each library unmodified in an environment of its own, pinned, against
`voxgate serve` with the demo voice. Do not edit.
"""


def main() -> None:
    results = {c: json.loads((RESULTS / f"{c.id}.json").read_text("utf-8")) for c in CLIENTS if _tested(c.id)}
    print(INTRODUCTION)
    print("| library | version | client | " + " | ".join(SCENARIOS) + " |")
    print("|---" * (3 + len(SCENARIOS)) + "|")
    notes: list[str] = []
    for client, result in results.items():
        cells = [_cell(result["outcome"].get(name, "none"), notes) for name in SCENARIOS]
        print(f"| {client.package} | {result['version']} | `{client.what}` | " + " | ".join(cells) + " |")
    print("\nn/a: the client has nothing of the kind (plain HTTP is not refused for want of sockets).")
    for number, note in enumerate(notes, 1):
        print(f"\n({number}) {note}")
    print("\n## What each column is\n")
    for name, scenario in SCENARIOS.items():
        print(f"- **{name}**: {scenario.__doc__}")


def _cell(said: str, notes: list[str]) -> str:
    """The cell of a result: yes, no or n/a, with the number of its note."""
    if said in ("ok", "none"):
        return {"ok": "yes", "none": "n/a"}[said]
    note = said.removeprefix("ok ")
    if note not in notes:
        notes.append(note)
    return f"{'yes' if said.startswith('ok ') else 'no'} ({1 + notes.index(note)})"


def _tested(id: str) -> bool:
    return (RESULTS / f"{id}.json").exists()


if __name__ == "__main__":
    main()
