"""Measuring before anybody listens: how far it goes, and what it leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from fakes.tone import Script, ToneSpeech, ToneSynthesizer
from fakes.virtual_time import run
from voxgate.pipeline.calibration import FRAMES, calibrate
from voxgate.pipeline.capacity import Capacity, Stage
from voxgate.pipeline.errors import EngineError, GenerationFailed, UnsupportedOption
from voxgate.pipeline.speech import SpeechRequest
from voxgate.pipeline.step_times import StepTimes


class Voice:
    """A tone talker whose frames take `step_s` of the number that speak at once."""

    def __init__(self, step_s: Callable[[int], float], slots: int = 32) -> None:
        self.synthesizer = ToneSynthesizer(Script(frame_s=0.05, ahead_frames=100), slots=slots)
        self.times = StepTimes()
        self.capacity = Capacity([Stage("talker", self.times, slots)], slots)
        self.slots, self.step_s = slots, step_s

    def open(self) -> ToneSpeech:
        speech = self.synthesizer.open(SpeechRequest("ada", max_frames=FRAMES))
        making = speech._make

        def measured(frames: int) -> object:
            together = len(self.synthesizer.open_speeches)
            self.times.record(together, self.step_s(together), asyncio.get_running_loop().time())
            return making(frames)

        speech._make = measured  # type: ignore[method-assign,assignment] # a probe
        speech.advance = lambda _: None  # type: ignore[method-assign,assignment] # nobody listens
        return speech

    async def calibrate(self) -> int:
        await self.synthesizer.start()
        await calibrate(self.capacity, self.slots, self.open)
        assert not self.synthesizer.open_speeches
        return self.capacity.utterances(asyncio.get_running_loop().time())


def test_it_goes_as_far_as_the_machine_carries_and_no_further() -> None:
    async def scene() -> None:
        voice = Voice(lambda n: 0.0059 * n)
        assert await voice.calibrate() == 12
        assert voice.synthesizer.most_open == 16, "one rung above what it carries shows that it does not carry it"

    run(scene())


def test_a_slow_machine_is_not_asked_for_more_than_one() -> None:
    async def scene() -> None:
        voice = Voice(lambda _: 0.5)
        assert await voice.calibrate() == 1
        assert voice.synthesizer.most_open == 1

    run(scene())


def test_it_ends_at_the_slots() -> None:
    async def scene() -> None:
        voice = Voice(lambda _: 0.001, slots=6)
        assert await voice.calibrate() == 6
        assert voice.synthesizer.most_open == 6

    run(scene())


def test_a_voice_that_makes_no_sound_is_not_taken_for_one_that_carries_everybody() -> None:
    async def scene() -> None:
        voice = Voice(lambda _: 0.001)
        voice.synthesizer.script.frame_s = 1000.0
        with pytest.raises(EngineError, match="no sound"):
            await voice.calibrate()
        assert not voice.synthesizer.open_speeches

    run(scene())


def test_a_voice_that_is_slower_than_the_calibration_is_patient_carries_one() -> None:
    async def scene() -> None:
        voice = Voice(lambda _: 5.0)
        voice.synthesizer.script.frame_s = 5.0
        assert await voice.calibrate() == 1

    run(scene())


def test_a_voice_that_takes_another_kind_of_request_is_learnt_while_speaking() -> None:
    async def scene() -> None:
        voice = Voice(lambda _: 0.001)

        def refuse() -> ToneSpeech:
            raise UnsupportedOption("this model needs instructions")

        await calibrate(voice.capacity, voice.slots, refuse)
        assert voice.capacity.utterances(0.0) == voice.slots, "nothing is known against it"

    run(scene())


def test_a_voice_that_cannot_speak_is_told_to_the_caller() -> None:
    async def scene() -> None:
        voice = Voice(lambda _: 0.001)
        voice.synthesizer.script.fail_frame = 3
        with pytest.raises(EngineError) as failed:
            await voice.calibrate()
        assert isinstance(failed.value, GenerationFailed)
        assert not voice.synthesizer.open_speeches

    run(scene())
