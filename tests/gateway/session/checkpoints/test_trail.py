from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from voxgate.codecs.format import OutputFormat
from voxgate.gateway.errors import CheckpointElsewhere
from voxgate.gateway.session.checkpoints.format import LIFE_S
from voxgate.gateway.session.checkpoints.trail import INTERVAL_S, MAX_FRAMES, NO_TRAIL, Checkpoints, Trail, restorable
from voxgate.pipeline.errors import CheckpointRefused, UnsupportedOption
from voxgate.pipeline.interface import CodeRun, FinishReason, Prosody, SpeechRequest
from voxgate.pipeline.text.lexicon.lexicon import Lexicon, LexiconRule

REQUEST = SpeechRequest(voice="ada", language="auto")
PCM = OutputFormat("pcm", 24_000)
SEED = 5


class Clock:
    now_s = 1_000_000.0

    def __call__(self) -> float:
        return self.now_s


class Codes:
    """What a trail needs of a speech."""

    seed = SEED

    def __init__(self) -> None:
        self.made = 0
        self._taken = 0

    def take_codes(self) -> Sequence[CodeRun]:
        first, self._taken = self._taken, self.made
        if first == self.made:
            return []
        return [CodeRun(0, first, np.arange(first, self.made, dtype=np.int16).reshape(-1, 1) % 100)]


class Bench:
    def __init__(self) -> None:
        self.clock = Clock()
        self.checkpoints = Checkpoints(lambda key: f"secret {key}".encode(), "a model", clock=self.clock)

    def trail(self, request: SpeechRequest = REQUEST, key: str | None = None, **changes: object) -> Trail:
        checkpoints = replace(self.checkpoints, **changes).for_key(key)  # type: ignore[arg-type]  # fields by name
        return checkpoints.trail(request, PCM, "")

    def parts(self, frames: int, key: str | None = None) -> list[str]:
        trail, speech = self.trail(key=key), Codes()
        parts = trail.due(speech, 0.0)  # type: ignore[arg-type]  # all that a trail needs
        speech.made = frames
        return parts + trail.due(speech, 10.0)  # type: ignore[arg-type]  # as above


def restored(trail: Trail, parts: Sequence[str], seed: int = SEED) -> SpeechRequest:
    trail.restore(seed, 0)
    trail.present(parts)
    return trail.request(REQUEST)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_parts_come_once_a_second_and_the_last_ones_at_infinity(bench: Bench) -> None:
    trail, speech = bench.trail(), Codes()
    assert len(trail.due(speech, 0.0)) == 1  # type: ignore[arg-type]  # all that a trail needs
    speech.made = 5
    assert trail.due(speech, INTERVAL_S - 0.01) == []  # type: ignore[arg-type]  # as above
    assert len(trail.due(speech, INTERVAL_S)) == 1  # type: ignore[arg-type]  # as above
    assert trail.due(speech, 2 * INTERVAL_S) == []  # type: ignore[arg-type]  # as above
    speech.made = 7
    assert len(trail.due(speech, math.inf)) == 1  # type: ignore[arg-type]  # as above
    speech.made = 9
    assert trail.due(speech, math.inf) == trail.due(speech, 100.0) == []  # type: ignore[arg-type]  # as above


def test_another_gateway_gets_the_codes(bench: Bench) -> None:
    request = restored(bench.trail(), bench.parts(30))
    assert request.keep_codes
    assert np.concatenate([run.codes for run in request.past]).ravel().tolist() == list(range(30))


def test_the_next_gateway_continues_the_chain(bench: Bench) -> None:
    parts = bench.parts(30)
    second, speech = bench.trail(), Codes()
    restored(second, parts)
    speech._taken, speech.made = 30, 40
    later = second.due(speech, 0.0)  # type: ignore[arg-type]  # all that a trail needs
    assert len(later) == 1
    assert sum(len(run.codes) for run in restored(bench.trail(), [*parts, *later]).past) == 40


def test_parts_may_come_in_several_messages_until_the_utterance_speaks(bench: Bench) -> None:
    trail, parts = bench.trail(), bench.parts(200)
    trail.restore(SEED, 0)
    for part in parts:
        trail.present([part])
    assert sum(len(run.codes) for run in trail.request(REQUEST).past) == 200
    with pytest.raises(CheckpointRefused, match="before its utterance speaks"):
        trail.present([parts[-1]])


def test_a_checkpoint_can_be_used_again_until_it_expires(bench: Bench) -> None:
    parts = bench.parts(3)
    restored(bench.trail(), parts)
    bench.clock.now_s += LIFE_S
    restored(bench.trail(), parts)
    bench.clock.now_s += 5
    with pytest.raises(CheckpointRefused, match=f"within {LIFE_S} s, it expired 5 s ago"):
        restored(bench.trail(), parts)


def test_an_old_head_with_a_new_part_has_not_expired(bench: Bench) -> None:
    trail, speech = bench.trail(), Codes()
    parts = trail.due(speech, 0.0)  # type: ignore[arg-type]  # all that a trail needs
    bench.clock.now_s += 10 * LIFE_S
    speech.made = 3
    parts += trail.due(speech, 1000.0)  # type: ignore[arg-type]  # as above
    restored(bench.trail(), parts)
    with pytest.raises(CheckpointRefused, match="expired"):
        restored(bench.trail(), parts[:1])


def test_a_foreign_checkpoint_is_refused(bench: Bench) -> None:
    parts = bench.parts(3, key="sha256:one")
    restored(bench.trail(key="sha256:one"), parts)
    for key in ("sha256:other", None):
        with pytest.raises(CheckpointRefused, match="same API key"):
            restored(bench.trail(key=key), parts)
    with pytest.raises(CheckpointRefused, match="same API key"):
        restored(bench.trail(key="sha256:one", derive_key=lambda _: b"another secret"), parts)


def test_another_model_is_for_another_replica(bench: Bench) -> None:
    with pytest.raises(CheckpointElsewhere, match="the model of the checkpoint must be"):
        restored(bench.trail(model="another model"), bench.parts(3))


@pytest.mark.parametrize(
    "request_",
    [
        replace(REQUEST, voice="bob"),
        replace(REQUEST, language="german"),
        replace(REQUEST, instructions="Softly."),
        replace(REQUEST, prosody=Prosody(1.5)),
        replace(REQUEST, trim_silence=True),
        replace(REQUEST, normalise=True),
        replace(REQUEST, max_frames=3),
        replace(REQUEST, lexica=(Lexicon([LexiconRule("a", "b")]),)),
    ],
)
def test_other_options_are_refused(bench: Bench, request_: SpeechRequest) -> None:
    with pytest.raises(CheckpointRefused, match="must be those of the checkpoint's utterance"):
        restored(bench.trail(request_), bench.parts(3))


def test_another_seed_or_voice_of_the_same_name_is_refused(bench: Bench) -> None:
    parts = bench.parts(3)
    with pytest.raises(CheckpointRefused, match="seed"):
        restored(bench.trail(), parts, seed=6)
    cloned = bench.checkpoints.trail(REQUEST, PCM, "digest of a recording")
    with pytest.raises(CheckpointRefused, match="voice"):
        restored(cloned, parts)


def test_what_does_not_change_the_audio_may_differ(bench: Bench) -> None:
    restored(bench.trail(replace(REQUEST, words=True, paced=False, seed=SEED)), bench.parts(3))


def test_frames_behind_the_limit_are_not_sent(bench: Bench) -> None:
    trail, speech = bench.trail(), Codes()
    parts = trail.due(speech, 0.0)  # type: ignore[arg-type]  # all that a trail needs
    for made in range(500, MAX_FRAMES + 1000, 500):
        speech.made = made
        parts += trail.due(speech, float(made))  # type: ignore[arg-type]  # as above
    request = restored(bench.trail(), parts)
    assert sum(len(run.codes) for run in request.past) == MAX_FRAMES // 500 * 500


def test_too_many_frames_are_refused(bench: Bench) -> None:
    """Also ends of generations, which have none."""
    trail = bench.trail()
    trail.restore(SEED, 0)
    parts = bench.parts(MAX_FRAMES)
    trail.present(parts)
    speech = Codes()
    more = bench.trail()
    restored(more, parts)
    speech._taken, speech.made = MAX_FRAMES, MAX_FRAMES + 1
    assert more.due(speech, 0.0) == []  # type: ignore[arg-type]  # all that a trail needs


def test_text_that_the_client_has_is_paid_once(bench: Bench) -> None:
    trail = bench.trail()
    trail.restore(SEED, 10)
    assert [trail.uncharged(count) for count in (4, 8, 3)] == [0, 2, 3]


def test_without_checkpoints_nothing_is_restored() -> None:
    assert NO_TRAIL.request(REQUEST) is REQUEST
    assert NO_TRAIL.uncharged(3) == 3
    with pytest.raises(UnsupportedOption, match="checkpoints=1"):
        NO_TRAIL.restore(SEED, 0)
    with pytest.raises(CheckpointRefused):
        NO_TRAIL.present(["x"])


def test_raw_audio_and_ogg_streams_are_not_restorable() -> None:
    assert restorable(PCM, raw=False)
    assert not restorable(PCM, raw=True)
    assert not restorable(OutputFormat("ogg_opus"), raw=False)


def test_a_retraction_replaces_the_checkpoint(bench: Bench) -> None:
    trail, speech = bench.trail(), Codes()
    trail.due(speech, 0.0)  # type: ignore[arg-type]  # all that a trail needs
    speech.made = 30
    trail.due(speech, 10.0)  # type: ignore[arg-type]  # as above
    kept = CodeRun(0, 0, np.arange(12, dtype=np.int16).reshape(-1, 1), FinishReason.END)
    parts = trail.rewind([kept], SEED)

    class Next(Codes):
        def take_codes(self) -> Sequence[CodeRun]:
            return [CodeRun(1, 0, np.array([[7]], np.int16))]

    assert trail.due(Next(), 10.5) == []  # type: ignore[arg-type]  # as above
    parts += trail.due(Next(), 11.5)  # type: ignore[arg-type]  # as above
    past = restored(bench.trail(), parts).past
    assert [(run.generation, run.first, len(run.codes), run.end) for run in past] == [
        (0, 0, 12, FinishReason.END),
        (1, 0, 1, None),
    ]


def test_other_text_before_the_first_audio_begins_the_checkpoint_again(bench: Bench) -> None:
    trail, speech = bench.trail(), Codes()
    speech.made = 3
    elsewhere = bench.trail()
    parts = [*elsewhere.due(speech, 0.0), *elsewhere.due(speech, 10.0)]  # type: ignore[arg-type]  # all that a trail needs
    trail.restore(SEED, 5)
    trail.present(parts)
    trail.begin_again()
    assert trail.request(REQUEST).past == ()
    head = trail.due(speech, 20.0)  # type: ignore[arg-type]  # as above
    assert restored(bench.trail(), head).past == ()


def test_speech_that_is_too_long_to_be_restored_behind_a_cut_has_no_checkpoint(bench: Bench) -> None:
    trail = bench.trail()
    kept = CodeRun(0, 0, np.zeros((MAX_FRAMES + 1, 1), np.int16), FinishReason.END)
    assert trail.rewind([kept], SEED) == []
    speech = Codes()
    speech.made = 3
    assert trail.due(speech, 10.0) == []  # type: ignore[arg-type]  # all that a trail needs
    assert NO_TRAIL.rewind([kept], SEED) == []
