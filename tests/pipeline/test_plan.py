from __future__ import annotations

from dataclasses import replace

import pytest
from fakes.speech_bench import PROMPT, SAMPLING
from voxgate.pipeline.plan import Plan
from voxgate.pipeline.text.rules import VoiceFile

PLAN = Plan(PROMPT, SAMPLING, max_frames=None, ahead_frames=50, rules=VoiceFile())


def test_what_is_ahead_grows_as_it_is_heard_up_to_all_of_it() -> None:
    plan = replace(PLAN, first_frames=12)
    assert [plan.ahead(heard, sounded=True) for heard in (0, 8, 38, 100)] == [12, 20, 50, 50]


@pytest.mark.parametrize("plan", [PLAN, replace(PLAN, first_frames=12, paced=False)])
def test_all_of_it_is_made_at_once_where_nobody_is_in_the_way_or_nobody_listens(plan: Plan) -> None:
    assert plan.ahead(0, sounded=True) == 50


def test_until_something_is_decoded_less_may_be_made() -> None:
    plan = replace(PLAN, first_frames=12, undecoded_frames=1)
    assert plan.ahead(0, sounded=False) == 1
    assert plan.ahead(0, sounded=True) == 12


def test_a_generations_cap_leaves_of_the_utterances_what_is_left() -> None:
    by_text = PLAN.rules.limits.max_frames(10)
    assert PLAN.cap(10, before=30) == by_text
    plan = replace(PLAN, max_frames=40)
    assert plan.cap(10, before=30) == min(10, by_text)
    assert plan.cap(10, before=40) == plan.cap(10, before=50) == 0
