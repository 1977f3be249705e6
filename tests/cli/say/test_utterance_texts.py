from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from voxgate.cli.say.utterance_texts import UtteranceTexts, divide


async def texts_of(fragments: list[str], max_characters: int | None) -> list[str]:
    texts, found = UtteranceTexts(fragments, max_characters), []
    while await texts.more():
        found.append("".join([fragment async for fragment in texts.fragments()]))
    return found


async def test_short_text_is_one_utterance_and_passed_on_in_its_fragments() -> None:
    texts = UtteranceTexts(["One. ", "Two. ", "Three."], 4096)
    assert [fragment async for fragment in texts.fragments()] == ["One. ", "Two. ", "Three."]
    assert not await texts.more()


async def test_text_without_a_limit_is_one_utterance() -> None:
    assert await texts_of(["A word. " * 9000], None) == ["A word. " * 9000]


async def test_text_as_long_as_the_limit_is_one_utterance() -> None:
    assert await texts_of(["a" * 64], 64) == ["a" * 64]
    assert await texts_of(["a" * 64, "\n"], 64) == ["a" * 64]


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
async def test_long_text_is_divided_at_the_last_sentence_in_fragments_of_any_size(size: int) -> None:
    text = "Sixteen letters. " * 50
    texts = await texts_of([text[at : at + size] for at in range(0, len(text), size)], 160)
    assert "".join(texts) == text
    assert all(len(each) <= 160 and each.endswith("letters. ") for each in texts)
    assert len(texts) == 6


async def test_text_that_comes_word_by_word_is_divided_where_a_sentence_ended_in_the_last_part() -> None:
    words = [f" {word}" for word in ("aaaa " * 18 + "end. Next one here and more").split()]
    first, second = await texts_of(words, 100)
    assert first.endswith(" end. ")
    assert second == "Next one here and more"


@pytest.mark.parametrize("seed", range(40))
async def test_no_character_is_lost_or_doubled(seed: int) -> None:
    draw = random.Random(seed)
    text = "".join(draw.choices("ab é.!? \n。e\u0301\U0001f44d\U0001f3fd", k=draw.randrange(1, 400))) + "z"
    cuts = sorted(draw.sample(range(len(text) + 1), min(len(text), draw.randrange(8))))
    fragments = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    limit = draw.randrange(12, 60)
    texts = await texts_of(fragments, limit)
    assert "".join(texts) == text
    assert all(0 < len(each) <= limit and not each.isspace() for each in texts)


def test_text_without_a_sentence_is_divided_at_white_space() -> None:
    assert divide("", "word and word", 4, 7) == 5
    assert divide("", "word and word", 4, 8) == 8
    assert divide("word ", "longer", 0, 3) == 0


def test_text_without_white_space_is_divided_anywhere_but_within_a_character() -> None:
    assert divide("", "aaaaaaaa", 2, 5) == 5
    assert divide("", "aaae\u0301\u0323aa", 2, 5) == 3
    assert divide("", "aa\U0001f468\u200d\U0001f469aa", 1, 4) == 2


def test_marks_within_a_number_or_before_a_quote_end_no_sentence() -> None:
    assert divide("", 'It is 3.14 or "so." Then', 1, 21) == 20
    assert divide("", "这是一句。又一句", 1, 7) == 5


async def test_blanks_are_no_utterance() -> None:
    assert await texts_of(["\n" * 500, "Hello", "\n" * 500], 64) == ["Hello" + "\n" * 59]
    assert await texts_of(["\n" * 20, "Hello"], 64) == ["\n" * 20 + "Hello"]
    assert [each async for each in UtteranceTexts(["\n"], 64).fragments()] == ["\n"]


async def test_fragments_fit_into_a_message() -> None:
    texts = UtteranceTexts(["a" * 100], 4096, 256 + 12 * 30)
    assert [len(each) async for each in texts.fragments()] == [30, 30, 30, 10]


async def test_cancelled_reading_loses_no_text() -> None:
    go_on = asyncio.Event()

    async def fragments() -> AsyncIterator[str]:
        await go_on.wait()
        yield "later"

    texts = UtteranceTexts(fragments(), 64)
    waiting = asyncio.create_task(texts.more())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    go_on.set()
    assert await texts.more()
    assert texts.waiting == "later"
    await texts.close()


async def test_error_of_the_fragments_is_raised() -> None:
    async def fragments() -> AsyncIterator[str]:
        yield "one"
        raise ValueError("broken")

    texts = UtteranceTexts(fragments(), 64)
    with pytest.raises(ValueError, match="broken"):
        _ = [each async for each in texts.fragments()]
