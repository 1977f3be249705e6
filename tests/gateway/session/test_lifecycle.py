"""The table of an utterance's life."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from voxgate.gateway.session.lifecycle import ENDED, TABLE, Event, IllegalEvent, State, follow


def test_event_missing_from_the_table_is_refused() -> None:
    for state in State:
        for event in Event:
            if event in TABLE[state]:
                assert follow(state, event) is TABLE[state][event]
            else:
                with pytest.raises(IllegalEvent) as refused:
                    follow(state, event)
                assert (refused.value.state, refused.value.event) == (state, event)


def test_random_walks_take_every_edge() -> None:
    chance = random.Random(1)
    edges = {(state, event) for state, row in TABLE.items() for event in row}
    hit = set()
    for _ in range(8000):
        state = State.OPEN
        for _ in range(20):
            event = chance.choice(list(Event))
            if event in TABLE[state]:
                hit.add((state, event))
                before, state = state, follow(state, event)
                assert before not in ENDED or before is State.DONE, "of the final states, only done has a successor"
    assert hit == edges


def test_every_state_is_reachable_and_can_fail() -> None:
    reachable, frontier = {State.OPEN}, [State.OPEN]
    while frontier:
        for state in TABLE[frontier.pop()].values():
            if state not in reachable:
                reachable.add(state)
                frontier.append(state)
    assert reachable == set(State)
    assert all(TABLE[s].get(Event.FAIL) is State.FAILED for s in set(State) - ENDED)


def diagram() -> str:
    """The table as a Mermaid state diagram: one edge for each pair of states, with its events."""
    lines = ["stateDiagram-v2", "    [*] --> open"]
    for state, row in TABLE.items():
        for successor in State:
            events = [event for event, target in row.items() if target is successor]
            if events:
                lines.append(f"    {state} --> {successor}: {', '.join(events)}")
    return "\n".join(lines)


def test_diagram_of_the_documentation_is_that_of_the_table() -> None:
    page = (Path(__file__).parents[3] / "docs" / "architecture.md").read_text("utf-8")
    assert f"```mermaid\n{diagram()}\n```" in page, f"docs/architecture.md must contain:\n{diagram()}"
