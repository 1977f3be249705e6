"""Capacity from measured steps, and the calibration before the first client."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections import Counter
from collections.abc import Callable

import pytest
from fakes.pipeline.tone_synthesizer import ToneScript, ToneSpeech, ToneSynthesizer
from fakes.virtual_time import run
from voxgate.pipeline.capacity import RECOVERING, STEPS_SLOWER, UPDATE_S, Capacity, Stage, calibrate
from voxgate.pipeline.errors import EngineError, GenerationFailed, UnsupportedOption
from voxgate.pipeline.interface import SpeechChunk, SpeechRequest
from voxgate.pipeline.step_times import LatencyCurve, StepTimes


class Machine:
    """A talker and a codec of known cost; `run` records the durations of their steps."""

    def __init__(self, talker_s: Callable[[int], float], codec_s: Callable[[int], float], slots: int = 64) -> None:
        self.talker_s, self.codec_s = talker_s, codec_s
        self.talker, self.codec = StepTimes(), StepTimes()
        stages = (Stage("talker", self.talker, slots), Stage("codec", self.codec, 8))
        self.capacity = Capacity(stages, slots)
        self.chance = random.Random(3)
        self.slower = 1.0
        self.now_s = 0.0

    def calibrate(self) -> int:
        for batch in (1, 2, 4, 8, 16):
            for _ in range(8):
                self.step(batch)
        self.capacity.commit_baseline(self.now_s)
        return self.capacity.utterances(self.now_s)

    def step(self, streams: int) -> None:
        noise = self.slower * self.chance.uniform(0.95, 1.05)
        self.talker.record(streams, self.talker_s(streams) * noise, self.now_s)
        for _ in range(max(1, streams // 8)):
            self.codec.record(min(streams, 8), self.codec_s(min(streams, 8)) * noise, self.now_s)

    def run(self, streams: int | None, seconds: float) -> list[int]:
        """Returns the capacity over time; `streams`: utterances at once, None: as many as the capacity."""
        seen = []
        for _ in range(round(seconds / 0.08)):
            self.now_s += 0.08
            seen.append(self.capacity.utterances(self.now_s))
            if streams != 0:
                self.step(seen[-1] if streams is None else streams)
        return seen


def codec_bound(slots: int = 64) -> Machine:
    """Returns a machine like the demo voice on two cores: its codec decodes 14 frames in 80 ms."""
    return Machine(lambda n: 0.010 + 0.001 * n, lambda frames: 0.004 + 0.0052 * frames, slots)


def test_capacity_equals_slots_before_measurement() -> None:
    assert codec_bound(slots=24).capacity.utterances(0.0) == 24


def test_calibration_finds_capacity_of_the_slowest_stage() -> None:
    # 8 frames take 45.6 ms plus at most 5 %: 72 ms are enough for 12.
    assert codec_bound().calibrate() == 12


def test_talker_can_be_the_slowest_stage() -> None:
    machine = Machine(lambda n: 0.010 + 0.004 * n, lambda _: 0.001)
    # Up to 5 % slower, 72 ms are enough for 14.
    assert machine.calibrate() in (14, 15)


def test_capacity_never_exceeds_slots() -> None:
    assert codec_bound(slots=5).calibrate() == 5


def test_capacity_is_at_least_one() -> None:
    assert Machine(lambda _: 0.3, lambda _: 0.5).calibrate() == 1


def test_capacity_is_stable_under_full_load() -> None:
    machine = codec_bound()
    first = machine.calibrate()
    seen = machine.run(None, seconds=60)
    assert max(seen) - min(seen) <= 1
    assert abs(seen[-1] - first) <= 1
    assert sum(later != earlier for earlier, later in itertools.pairwise(seen)) <= 2, "it does not swing"


def test_capacity_falls_at_once_and_recovers_in_steps() -> None:
    machine = codec_bound()
    full = machine.calibrate()
    machine.run(None, seconds=10)
    machine.slower = 2.0
    slow = machine.run(None, seconds=20)[-1]
    assert slow <= full / 2 + 1
    machine.slower = 1.0
    seen = machine.run(None, seconds=40)
    assert abs(seen[-1] - full) <= 1
    assert all(later - earlier <= 2 for earlier, later in itertools.pairwise(seen))


def test_hundreds_of_utterances_recover_in_proportion() -> None:
    machine = Machine(lambda n: 0.010 + 0.00004 * n, lambda frames: 0.0001 * frames, slots=1600)
    for batch in (1, 16, 256, 1600):
        for _ in range(8):
            machine.step(batch)
    machine.capacity.commit_baseline(machine.now_s)
    full = machine.capacity.utterances(machine.now_s)
    machine.slower = 1.3
    slow = machine.run(400, seconds=5)[-1]
    machine.slower = 1.0
    seen = machine.run(400, seconds=40)
    assert slow < full - 100
    assert seen[-1] >= full - 2
    assert all(later - earlier <= 1 + earlier // 64 for earlier, later in itertools.pairwise(seen))


def test_changes_are_counted_and_logged_with_their_cause(caplog: pytest.LogCaptureFixture) -> None:
    machine = codec_bound()
    full = machine.calibrate()
    machine.run(None, seconds=10)
    machine.capacity.changes.clear()
    caplog.set_level(logging.INFO)
    machine.slower = 2.0
    slow = machine.run(None, seconds=20)[-1]
    assert set(machine.capacity.changes) == {STEPS_SLOWER}
    assert f"{slow} utterances at once instead of" in caplog.messages[-1]
    assert "steps slower: with" in caplog.messages[-1]
    assert "the codec needs" in caplog.messages[-1]
    machine.slower = 1.0
    machine.run(None, seconds=40)
    assert machine.capacity.changes[RECOVERING] >= full - slow - 1
    assert len(caplog.messages) == machine.capacity.changes.total()


def test_slower_cores_at_full_load_cause_no_oscillation() -> None:
    """Steps take longer with more utterances at any batch size, so that few streams predict too high a capacity."""
    machine = codec_bound()
    machine.calibrate()
    plain = machine.codec_s
    seen = []
    for _ in range(120):
        speaking = machine.capacity.utterances(machine.now_s)
        machine.codec_s = lambda frames, speaking=speaking: plain(frames) * (1 + 0.05 * speaking)  # type: ignore[misc]  # a slower machine
        seen += machine.run(None, seconds=1)
    # 72 ms are enough for 8 streams, 77 ms for 8.
    assert set(seen[40 * 12 :]) <= {7, 8, 9, 10}
    assert sum(seen[600:]) / len(seen[600:]) == pytest.approx(8.4, abs=1)


def test_idle_time_does_not_change_capacity() -> None:
    machine = codec_bound()
    full = machine.calibrate()
    assert set(machine.run(0, seconds=300)) == {full}


def test_capacity_recovers_from_a_bad_moment_under_low_load() -> None:
    machine = codec_bound()
    full = machine.calibrate()
    machine.slower = 4.0
    assert machine.run(None, seconds=5)[-1] <= 4
    machine.slower = 1.0
    assert machine.run(2, seconds=40)[-1] >= full - 1


def test_overload_must_last_to_be_reported() -> None:
    machine = codec_bound()
    machine.calibrate()
    capacity = machine.capacity
    machine.run(12, seconds=5)
    assert not capacity.overloaded(12, machine.now_s)
    machine.slower = 2.0
    machine.run(12, seconds=6)
    assert not capacity.overloaded(12, machine.now_s), "for a first moment"
    machine.run(12, seconds=1.2)
    assert capacity.overloaded(12, machine.now_s)
    assert capacity.utilisation(12, machine.now_s) == pytest.approx(2 * 12 * 0.0456 / 8 / 0.08, rel=0.1)
    assert capacity.overloaded(0, machine.now_s), "and it takes a while to be believed again"
    machine.run(0, seconds=4)
    assert not capacity.overloaded(0, machine.now_s)


def test_no_utterances_are_no_load() -> None:
    assert codec_bound().capacity.utilisation(0, 0.0) == 0.0


def test_answers_follow_new_steps_within_the_update_interval() -> None:
    machine = codec_bound()
    full = machine.calibrate()
    machine.slower = 3.0
    for _ in range(96):
        machine.step(12)
    before = machine.capacity.utilisation(12, machine.now_s)
    assert before < 1
    assert machine.capacity.utilisation(12, machine.now_s + UPDATE_S) > 2.5 * before
    assert machine.capacity.utterances(machine.now_s + UPDATE_S) < full / 2


def test_a_new_baseline_counts_at_once() -> None:
    machine = codec_bound()
    full = machine.calibrate()
    machine.capacity.reset()
    machine.slower = 3.0
    assert machine.calibrate() < full / 2
    assert machine.capacity.utilisation(full, machine.now_s) > 2


def test_what_was_measured_before_a_reset_counts_no_more() -> None:
    machine = codec_bound()
    machine.calibrate()
    assert machine.capacity.utilisation(12, machine.now_s) > 0.5
    machine.capacity.reset()
    assert machine.capacity.utilisation(12, machine.now_s) == 0.0


def test_questions_share_one_prediction_per_update_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = codec_bound()
    machine.calibrate()
    curves = 0
    compute = StepTimes.curve

    def counted(times: StepTimes, now_s: float) -> LatencyCurve:
        nonlocal curves
        curves += 1
        return compute(times, now_s)

    monkeypatch.setattr(StepTimes, "curve", counted)
    for _ in range(1000):
        machine.now_s += 0.01
        machine.step(12)
        machine.capacity.overloaded(12, machine.now_s)
        machine.capacity.utilisation(3, machine.now_s)
        machine.capacity.utterances(machine.now_s)
    assert 0 < curves <= len(machine.capacity.stages) * (1 + 10.0 / UPDATE_S)


class Voice:
    """A tone talker whose frames take `step_s(utterances at once)`."""

    def __init__(self, step_s: Callable[[int], float], slots: int = 32) -> None:
        self.synthesizer = ToneSynthesizer(ToneScript(frame_s=0.05, lookahead_frames=100), slots=slots)
        self.times = StepTimes()
        self.capacity = Capacity([Stage("talker", self.times, slots)], slots)
        self.slots, self.step_s = slots, step_s
        self.on_step: Callable[[float], object] = lambda _: None
        """Called with the time of each step."""
        self.opened: Counter[int] = Counter()
        """Utterances by their frames."""

    def open(self, max_frames: int) -> ToneSpeech:
        speech = self.synthesizer.open(SpeechRequest("ada", max_frames=max_frames))
        self.opened[max_frames] += 1
        making = speech._make

        def measured(frames: int) -> object:
            together = len(self.synthesizer.open_speeches)
            now_s = asyncio.get_running_loop().time()
            self.times.record(together, self.step_s(together), now_s)
            self.on_step(now_s)
            return making(frames)

        speech._make = measured  # type: ignore[method-assign,assignment] # a probe
        speech.advance = lambda _: None  # type: ignore[method-assign,assignment] # playback is not simulated
        return speech

    async def calibrate(self) -> int:
        await self.synthesizer.start()
        await calibrate(self.capacity, self.slots, self.open)
        assert not self.synthesizer.open_speeches
        return self.capacity.utterances(asyncio.get_running_loop().time())


def test_calibration_stops_beyond_capacity() -> None:
    async def scene() -> None:
        voice = Voice(lambda n: 0.0059 * n)
        assert await voice.calibrate() == 12
        assert voice.synthesizer.most_open == 16, "one rung above what it carries shows that it does not carry it"

    run(scene())


def test_calibration_is_no_change_of_the_capacity(caplog: pytest.LogCaptureFixture) -> None:
    """From a step of one utterance a capacity of 51 would follow, and growth from it would be slow for a minute."""
    caplog.set_level(logging.INFO)

    async def scene() -> None:
        voice = Voice(lambda n: 0.0014 if n == 1 else 0.001, slots=64)
        voice.on_step = lambda now_s: voice.capacity.utterances(now_s)
        assert await voice.calibrate() == 64
        assert voice.capacity.changes.total() == 0
        assert "instead of" not in caplog.text

    run(scene())


def test_calibration_of_slow_machine_stops_at_one() -> None:
    async def scene() -> None:
        voice = Voice(lambda _: 0.5)
        assert await voice.calibrate() == 1
        assert voice.synthesizer.most_open == 1

    run(scene())


def test_calibration_ends_at_the_slots() -> None:
    async def scene() -> None:
        voice = Voice(lambda _: 0.001, slots=6)
        assert await voice.calibrate() == 6
        assert voice.synthesizer.most_open == 6

    run(scene())


def test_calibration_leaves_sizes_out_where_there_are_many_slots() -> None:
    async def scene() -> None:
        voice = Voice(lambda n: 0.00005 * n, slots=1600)
        assert await voice.calibrate() == pytest.approx(0.9 * 0.08 / 0.00005, rel=0.01)
        assert voice.synthesizer.most_open == 1600
        assert voice.opened == {16: 1 + 1 + 2 + 4 + 8 + 16 + 64 + 256 + 1600}

    run(scene())


class LateSpeech(ToneSpeech):
    """Its engine reads one prompt after the other, 50 ms each; eight frames are made before any is heard."""

    def __init__(self, voice: LateVoice, max_frames: int) -> None:
        super().__init__(voice.synthesizer, SpeechRequest("ada", max_frames=max_frames))
        self.voice = voice
        self.ready_s = voice.prompt_read_s()

    def advance(self, frames: int) -> None:
        self.heard = frames
        self._changed.set()

    async def __anext__(self) -> SpeechChunk:
        await asyncio.sleep(max(0.0, self.ready_s - asyncio.get_running_loop().time()))
        while self.made >= 8 and not self.heard:
            self._changed.clear()
            await self._changed.wait()
        self.voice.stepping += 1
        self.voice.most_stepping = max(self.voice.most_stepping, self.voice.stepping)
        try:
            return await super().__anext__()
        finally:
            self.voice.stepping -= 1


class LateVoice(Voice):
    """Counts the utterances that step at once."""

    def __init__(self, slots: int) -> None:
        super().__init__(lambda _: 0.001, slots)
        self.stepping = self.most_stepping = 0
        self.read_s = 0.0

    def prompt_read_s(self) -> float:
        self.read_s = max(self.read_s, asyncio.get_running_loop().time()) + 0.05
        return self.read_s

    def open(self, max_frames: int) -> ToneSpeech:
        return LateSpeech(self, max_frames)


def test_calibration_has_all_utterances_in_one_step_although_prompts_are_read_in_turn() -> None:
    async def scene() -> None:
        voice = LateVoice(slots=64)
        await voice.calibrate()
        assert voice.most_stepping == 64

    run(scene())


def test_failure_closes_utterances_that_wait_for_the_first_audio_of_others() -> None:
    """One never has audio, one fails, and two wait for both; an engine that still runs would lack their slots."""

    async def scene() -> None:
        voice = LateVoice(slots=4)

        def open_speech(max_frames: int) -> ToneSpeech:
            speech = voice.open(max_frames)
            assert isinstance(speech, LateSpeech)
            opened.append(speech)
            if len(opened) == 5:  # behind the first one alone, one, and two at once
                speech.ready_s = 10**6
            if len(opened) == 6:
                speech.lose(UnsupportedOption("this model needs instructions"))
            return speech

        opened: list[LateSpeech] = []
        await calibrate(voice.capacity, voice.slots, open_speech)
        assert len(opened) == 8
        assert all(speech.closed for speech in opened)
        assert len(asyncio.all_tasks()) == 1

    run(scene())


def test_calibration_says_from_which_steps_the_capacity_follows(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def scene() -> None:
        await Voice(lambda n: 0.0058 * n).calibrate()
        assert "capacity: 12 utterances at once" in caplog.text
        assert "the talker needs 87 % of a frame's time (5.8 ms for 1, 11.6 ms for 2, 23.2 ms for 4" in caplog.text

    run(scene())


def test_calibration_without_audio_raises_engine_error() -> None:
    async def scene() -> None:
        voice = Voice(lambda _: 0.001)
        voice.synthesizer.script.frame_s = 1000.0
        with pytest.raises(EngineError, match="made no audio in 60 s"):
            await voice.calibrate()
        assert not voice.synthesizer.open_speeches

    run(scene())


def test_calibration_timeout_keeps_capacity_of_one() -> None:
    async def scene() -> None:
        voice = Voice(lambda _: 5.0)
        voice.synthesizer.script.frame_s = 5.0
        assert await voice.calibrate() == 1

    run(scene())


def test_refused_calibration_leaves_capacity_at_slots() -> None:
    async def scene() -> None:
        voice = Voice(lambda _: 0.001)

        def refuse(_: int) -> ToneSpeech:
            raise UnsupportedOption("this model needs instructions")

        await calibrate(voice.capacity, voice.slots, refuse)
        assert voice.capacity.utterances(0.0) == voice.slots, "nothing is known against it"

    run(scene())


def test_calibration_raises_engine_failure() -> None:
    async def scene() -> None:
        voice = Voice(lambda _: 0.001)
        voice.synthesizer.script.fail_frame = 3
        with pytest.raises(EngineError) as failed:
            await voice.calibrate()
        assert isinstance(failed.value, GenerationFailed)
        assert not voice.synthesizer.open_speeches

    run(scene())
