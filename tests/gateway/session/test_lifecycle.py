"""The table of an utterance's life."""

from __future__ import annotations

import random

import pytest
from voxgate.gateway.session.lifecycle import ENDED, TABLE, Event, IllegalEvent, State, follow


def test_every_pair_is_either_in_the_table_or_refused() -> None:
    for state in State:
        for event in Event:
            if event in TABLE[state]:
                assert follow(state, event) is TABLE[state][event]
            else:
                with pytest.raises(IllegalEvent) as refused:
                    follow(state, event)
                assert (refused.value.state, refused.value.event) == (state, event)


def test_random_walks_hit_every_edge_and_end() -> None:
    chance = random.Random(1)
    edges = {(state, event) for state, row in TABLE.items() for event in row}
    hit = set()
    for _ in range(2000):
        state = State.QUEUED
        for _ in range(20):
            event = chance.choice(list(Event))
            if event in TABLE[state]:
                hit.add((state, event))
                before, state = state, follow(state, event)
                assert before not in ENDED or before is State.DONE, "only done has a way on"
    assert hit == edges


def test_every_state_can_be_reached_and_left_for_an_end() -> None:
    reachable, frontier = {State.QUEUED}, [State.QUEUED]
    while frontier:
        for state in TABLE[frontier.pop()].values():
            if state not in reachable:
                reachable.add(state)
                frontier.append(state)
    assert reachable == set(State)
    assert all(TABLE[s].get(Event.FAIL) is State.FAILED for s in set(State) - ENDED)
