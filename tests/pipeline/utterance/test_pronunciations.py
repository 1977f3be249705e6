"""Pronunciations in the text of an utterance: other words are spoken, and offsets are those of the client's text."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fakes.pipeline.speech_bench import SpeechBench
from fakes.virtual_time import run
from voxgate.pipeline.text.lexicon.lexicon import Lexicon, LexiconRule


@pytest.mark.parametrize("size", [1, 4, 100])
def test_an_utterance_speaks_the_forms_and_reports_the_clients_words(
    bench: Callable[..., SpeechBench], size: int
) -> None:
    text = "one SQL two"

    async def scene() -> None:
        async with bench(lexica=[Lexicon([LexiconRule("SQL", "sequel")])]) as b:
            for at in range(0, len(text), size):
                b.speech.push_text(text[at : at + size])
            b.speech.end()
            chunks = await b.listen()
            assert b.segments() == ["one sequel two"]
            words = [word for chunk in chunks for word in chunk.words]
            assert [text[word.start : word.end] for word in words] == ["one", "SQL", "two"]
            assert b.speech.pronunciations == ("SQL",)
            assert b.speech.spoken_until(10**9) == len(text)

    run(scene())
