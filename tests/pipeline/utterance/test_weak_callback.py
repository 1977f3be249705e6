"""Callbacks that do not keep their object alive, and utterances that are freed as soon as they have ended."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator

import pytest
from fakes.pipeline.speech_bench import STORY, SpeechBench
from fakes.virtual_time import run
from voxgate.pipeline.alignment.lazy import LazyWordAligner
from voxgate.pipeline.alignment.word_timing import WordAligner
from voxgate.pipeline.utterance.speech import UtteranceSpeech
from voxgate.pipeline.utterance.weak_callback import weak_callback


class Counted:
    def __init__(self) -> None:
        self.count = 0

    def add(self, number: int) -> None:
        self.count += number


@pytest.fixture
def without_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_method_is_called_while_its_object_lives() -> None:
    counted = Counted()
    call = weak_callback(counted.add)
    call(3)
    assert counted.count == 3
    del counted
    call(4)


def test_error_of_the_method_is_raised() -> None:
    counted = Counted()
    with pytest.raises(TypeError):
        weak_callback(counted.add)("three")  # type: ignore[arg-type]  # the error that is meant


@pytest.mark.usefixtures("without_collections")
@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("lazy", [False, True])
def test_ended_utterance_is_freed_at_once(bench: Callable[..., SpeechBench], *, stopped: bool, lazy: bool) -> None:
    async def scene() -> weakref.ref[UtteranceSpeech]:
        async with bench(timing=LazyWordAligner(WordAligner()) if lazy else WordAligner()) as b:
            if stopped:
                b.speech.push_text(STORY)
                await anext(b.speech)
            else:
                await b.say(STORY)
        speech = weakref.ref(b.speech)
        b.over.clear()
        del b.speech
        return speech

    speech = run(scene())
    assert speech() is None
