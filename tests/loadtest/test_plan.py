from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import chain, pairwise

import pytest
from voxgate.loadtest.plan import BehaviourShares, LoadStep
from voxgate.loadtest.results import ClientBehaviour
from voxgate.loadtest.targets.connection import TargetOptions
from voxgate.loadtest.virtual_user import random_text, split_words
from voxgate.loadtest.worker import decode_step, encode_step

LOAD = LoadStep("voxgate", TargetOptions("http://127.0.0.1:1"), seconds=100, rate_per_s=20)


def test_arrivals_are_a_poisson_process() -> None:
    times = [start_s for _, start_s in LOAD.arrivals_s()]
    assert len(times) == pytest.approx(2000, rel=0.08)
    assert times == sorted(times)
    assert 0 <= times[0] <= times[-1] < 100
    gaps = [later - earlier for earlier, later in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert deviation == pytest.approx(mean, rel=0.1)


@pytest.mark.parametrize("load", [LOAD, replace(LOAD, rate_per_s=0, streams=10)])
def test_virtual_users_are_divided_among_processes(load: LoadStep) -> None:
    parts = [replace(load, part=part, parts=3).arrivals_s() for part in range(3)]
    assert sorted(chain(*parts)) == sorted(load.arrivals_s())


def test_same_seed_plans_the_same_utterances() -> None:
    shared = replace(LOAD, shares=BehaviourShares(0.3, 0.1, 0.1))
    assert shared.utterance(3, 1, 0.0) == replace(shared, part=1, parts=2).utterance(3, 1, 0.0)
    assert len({shared.utterance(stream, 0, 0.0).cut_s for stream in range(20)}) == 20
    assert shared.utterance(0, 0, 0.0) != replace(shared, seed=2).utterance(0, 0, 0.0)


def test_behaviours_are_drawn_by_their_shares() -> None:
    choice = random.Random(5)
    drawn = Counter(BehaviourShares(0.3, 0.2, 0.1).draw(choice) for _ in range(5000))
    for behaviour, share in (
        (ClientBehaviour.BARGE_IN, 0.3),
        (ClientBehaviour.SLOW, 0.2),
        (ClientBehaviour.ABRUPT, 0.1),
        (ClientBehaviour.PLAIN, 0.4),
    ):
        assert drawn[behaviour] / 5000 == pytest.approx(share, abs=0.03)


def test_text_is_split_into_words_without_loss() -> None:
    text = random_text(3, random.Random(1))
    pieces = split_words(text)
    assert "".join(pieces) == text
    assert len(pieces) == len(text.split())


def test_step_survives_its_encoding() -> None:
    load = replace(LOAD, shares=BehaviourShares(0.5), part=1, parts=2)
    assert decode_step(encode_step(load)) == load
