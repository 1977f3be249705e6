"""Writes docs/compatibility.md to standard output, of what tests/compat/test_compat.py has found."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from compat.roster import CLIENTS, RESULTS
from compat.scenarios import SCENARIOS

MARKS = {"ok": "yes", "none": "n/a"}

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
        cells = []
        for name in SCENARIOS:
            said = result["outcome"].get(name, "none")
            if said not in MARKS:
                notes.append(f"`{client.what}`, {name}: {said}")
                said = f"no ({len(notes)})"
            elif name == "barge-in" and said == "ok" and client.barges_in_silently:
                said = "yes (a)"
            cells.append(MARKS.get(said, said))
        version = result["version"]
        print(f"| {client.package} | {version} | `{client.what}` | " + " | ".join(cells) + " |")
    print("\nn/a: the client has nothing of the kind (plain HTTP is not refused for want of sockets).")
    if any(client.barges_in_silently for client in results):
        print(
            "\n(a) Once it has sent all its text, the library stops listening without a word to the server. The rest is"
            "\nspoken unheard, at playback pace, and takes up a talker until then; the next one does not wait for it."
        )
    for number, note in enumerate(notes, 1):
        print(f"\n({number}) {note}")
    print("\n## What each column is\n")
    for name, scenario in SCENARIOS.items():
        print(f"- **{name}**: {scenario.__doc__}")


def _tested(id: str) -> bool:
    return (RESULTS / f"{id}.json").exists()


if __name__ == "__main__":
    main()
