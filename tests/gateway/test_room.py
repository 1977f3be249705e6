import math
from types import SimpleNamespace
from typing import Any

import pytest
from voxgate.gateway.room import Room
from voxgate.gateway.settings import Settings, SettingsError
from voxgate.pipeline.speech import EngineState


def model(**changed: Any) -> Any:
    return SimpleNamespace(capacity=12, free_slots=3, state=EngineState.READY, voices=("slt", "rms"), **changed)


@pytest.mark.parametrize(("limit", "slots"), [(None, 12), (5, 5), (50, 12)])
def test_a_limit_takes_of_the_capacity_and_adds_nothing(limit, slots):
    assert Room(Settings(active_utterances=limit), model()).slots() == slots


def test_nobody_waits_for_a_slot_of_an_engine_that_is_gone():
    engine = model()
    room = Room(Settings(), engine)
    assert room.free_slots() == 3
    engine.state = EngineState.DEAD
    assert room.free_slots() == math.inf


def test_a_voice_that_the_model_has_not_is_refused_by_name():
    Room(Settings(), model()).check_voices()
    Room(Settings(voice="RMS"), model()).check_voices()
    with pytest.raises(SettingsError, match="'ada' is not one of the model's: slt, rms"):
        Room(Settings(voice="ada"), model()).check_voices()


def test_an_alias_for_no_voice_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    Room(Settings(voice_aliases=("alloy=slt", "echo=ada")), model()).check_voices()
    (record,) = caplog.records
    assert "echo means ada" in record.getMessage()
