"""Failures of one utterance alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from fakes.pipeline.speech_bench import PROMPT, SpeechBench
from fakes.virtual_time import run
from voxgate.pipeline.errors import GenerationFailed


def test_unexpected_failure_raises_generation_failed(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench() as b:

            def refuse(_: object) -> None:
                raise ValueError("codes must lie in [0, 512)")

            b.codec.push = refuse
            b.speech.push_text("one two.")
            with pytest.raises(GenerationFailed, match="the utterance failed"):
                await b.listen()
            assert len(b.engine.free_slots) == 2

    run(scene())


def test_oversized_prompt_fails_iteration_not_push_text(
    bench: Callable[..., SpeechBench],
) -> None:
    async def scene() -> None:
        async with bench(prompt=replace(PROMPT, context=np.repeat(PROMPT.context, 200, axis=0))) as b:
            b.speech.push_text("one two three, and so on. ")
            b.speech.push_text("more")
            b.speech.end()
            with pytest.raises(GenerationFailed, match="the utterance failed"):
                await b.listen()
            assert len(b.engine.free_slots) == 2

    run(scene())
