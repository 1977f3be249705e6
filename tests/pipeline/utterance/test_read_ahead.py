"""Text that is read before the utterance has its slots is spoken as if it had been read behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fakes.pipeline.speech_bench import SpeechBench
from fakes.virtual_time import run, settle
from voxgate.pipeline.interface import MarkupDialect, SpeechChunk
from voxgate.pipeline.text.lexicon.lexicon import Lexicon, LexiconRule
from voxgate.pipeline.utterance.plan import FIRST_CHARACTERS

TEXTS = (
    "one two three four five six.",
    'one <break time="1s"/>two three four',
    '<break time="1s"/>one two three',
    "Dr. Who owns SQL <b>and</b> more",
    "one",
)
LEXICA = (Lexicon([LexiconRule("SQL", "sequel")]),)


async def spoken(
    bench: Callable[..., SpeechBench], fragments: list[str], beginning: str
) -> tuple[list[int], list[SpeechChunk], tuple[str, ...]]:
    """Tokens, chunks and replaced terms of an utterance whose text comes in these fragments."""
    async with bench(markup=tuple(MarkupDialect), lexica=LEXICA, beginning=beginning) as b:
        for fragment in fragments:
            b.speech.push_text(fragment)
            await settle()
        b.speech.end()
        chunks = await b.listen()
        return b.spoken(), chunks, b.speech.pronunciations


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("size", [1, 5, 100])
def test_text_read_ahead_is_spoken_once(bench: Callable[..., SpeechBench], text: str, size: int) -> None:
    async def scene() -> None:
        fragments = [text[at : at + size] for at in range(0, len(text), size)]
        plain = await spoken(bench, fragments, "")
        for known in (1, 6, len(text)):
            ahead = await spoken(bench, fragments, text[:known])
            assert ahead[0] == plain[0]
            assert ahead[2] == plain[2]
            for of in (lambda chunk: chunk.words, lambda chunk: chunk.pcm.tolist()):
                assert [part for chunk in ahead[1] for part in of(chunk)] == [
                    part for chunk in plain[1] for part in of(chunk)
                ]

    run(scene())


def test_a_speech_begins_with_tokens_that_were_read_ahead(bench: Callable[..., SpeechBench]) -> None:
    text = "one two three four five six seven"

    async def scene() -> None:
        async with bench(beginning=text) as b:
            assert not b.engine.opened
            b.speech.push_text(text[:1])
            assert b.engine.opened[0].tokens == len(
                b.tokenizer.encode_plain(text[: text.rindex(" ", 0, FIRST_CHARACTERS)])
            )

    run(scene())
