"""An utterance's text: tokens independent of fragments, sentence ends, flushes and limits."""

# ruff: noqa: RUF001 - punctuation and letters of many scripts are the subject here.
from __future__ import annotations

import os
import random

import pytest
from voxgate.pipeline.checkpoint.voice_config import TextRules
from voxgate.pipeline.errors import EmptyText, TextTooLong
from voxgate.pipeline.text.tokenizer import TextTokenizer
from voxgate.pipeline.text.utterance_text import SpeechToken, UtteranceText, ends_sentence


@pytest.mark.parametrize(
    "text",
    [
        *[
            "It is. |So",
            "Really?! |Yes",
            'She said "no." |Then',
            "Done.\n|Next",
            "(It is.) |So",
            "It is.| So",
        ],
        *["In 2019. |Then", "你好。|世界", "真的？！|好", "他说“好。”|然后"],
    ],
)
def test_sentence_ends_at_offset(text: str) -> None:
    at = text.index("|")
    assert ends_sentence(text.replace("|", ""), at)


@pytest.mark.parametrize(
    "text",
    [
        *["3.|14", "Dr. |Smith", "J. |Smith", "e.g. |this", "at 5 p.m. |we", "U.S. |law", "\n1. |First"],
        *["word,| then", "example.|com", "Really?|!", "你好。|”他说", "It is.|", "so |it", "1. |First"],
    ],
)
def test_sentence_does_not_end_at_offset(text: str) -> None:
    at = text.index("|")
    assert not ends_sentence(text.replace("|", ""), at)


FRAGMENTATIONS = int(os.environ.get("VOXGATE_TEST_FUZZ", "100000")) // 5

ENGLISH = TextRules(spoken_form="en", closing_mark=".")

PARTS = [
    *"abTIé'’.,!? \n\r\t123½①℃$€%-:/&@#<|>今。—…",
    *["\x00", "\ufeff", "\ud83d", "\ude00", "\u0301", "\u0323", "\u00a0", "\u200b", "👩\u200d🚀", "天气"],
    *["$4.50", "$3 ", "million", "4:15", "1980s", "Dr. ", "e.g.", "3rd", "5 km", "USA", " and ", " the "],
    *["<|im_end|>", "<|im_", "<tts_pad>", "<tts_", "don't", "it is. ", "No! ", "é" * 70],
]


def spoken(rules: TextRules, tokenizer: TextTokenizer, *fragments: str) -> list[SpeechToken]:
    text = UtteranceText(rules, tokenizer, 10_000)
    tokens = [token for fragment in fragments for token in text.push(fragment)]
    try:
        tokens += text.end()
    except EmptyText:
        assert not tokens
    return tokens


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("demo", ENGLISH),
        ("qwen2", TextRules()),
        ("mistral", ENGLISH),
        ("qwen2", TextRules(trim=False)),
    ],
)
def test_tokens_do_not_depend_on_fragments(tokenizers: dict[str, TextTokenizer], name: str, rules: TextRules) -> None:
    tokenizer = tokenizers[name]
    rng = random.Random(f"{name} {FRAGMENTATIONS}")
    done = 0
    while done < FRAGMENTATIONS // 3:
        text = "".join(rng.choices(PARTS, k=rng.randint(1, 12)))
        want = spoken(rules, tokenizer, text)
        for _ in range(5):
            places = sorted(rng.choices(range(len(text) + 1), k=rng.randint(1, 6)))
            cuts = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
            assert spoken(rules, tokenizer, *cuts) == want, cuts
            done += 1
        ends = [token.source_end for token in want]
        assert ends == sorted(ends)
        assert not ends or ends[-1] <= len(text)


@pytest.mark.parametrize(
    ("text", "as_trained"),
    [
        ("Hello, how can I help you today?", "hello, how can i help you today?"),
        ("The total is $4.50.", "the total is four dollars and fifty cents."),
        ("  It was 1998; so what", "it was nineteen ninety eight; so what."),
    ],
)
def test_demo_voice_receives_tokens_it_was_trained_on(
    tokenizers: dict[str, TextTokenizer], text: str, as_trained: str
) -> None:
    demo = tokenizers["demo"]
    want = demo.tokenizer.encode(as_trained, add_special_tokens=False).ids
    assert [token.id for token in spoken(ENGLISH, demo, *text)] == want


def test_voice_without_rules_receives_unchanged_text(tokenizers: dict[str, TextTokenizer]) -> None:
    qwen2 = tokenizers["qwen2"]
    want = qwen2.tokenizer.encode("It costs $4.50", add_special_tokens=False).ids
    assert [token.id for token in spoken(TextRules(), qwen2, "It costs", " $4.50 \n")] == want


def test_white_space_at_both_ends_is_kept_on_request(tokenizers: dict[str, TextTokenizer]) -> None:
    qwen2, source = tokenizers["qwen2"], "  it is \n "
    want = qwen2.tokenizer.encode(source, add_special_tokens=False).ids
    kept = spoken(TextRules(trim=False), qwen2, *source)
    assert [token.id for token in kept] == want
    assert kept[-1].source_end == len(source)
    assert len(spoken(TextRules(), qwen2, source)) < len(want)


@pytest.mark.parametrize("source", ["", "  \n", "\n  ", "<|im_end|>"])
def test_kept_white_space_alone_is_no_text(tokenizers: dict[str, TextTokenizer], source: str) -> None:
    text = UtteranceText(TextRules(trim=False), tokenizers["qwen2"], 1000)
    assert text.push(source) + text.flush() == []
    with pytest.raises(EmptyText):
        text.end()


def test_tokens_are_returned_when_final(tokenizers: dict[str, TextTokenizer]) -> None:
    text = UtteranceText(ENGLISH, tokenizers["demo"], 1000)
    assert not text.push("Hello")
    assert [token.source_end for token in text.push(" there")] == []
    assert text.push(" now. ")[-1] == SpeechToken(
        tokenizers["demo"].tokenizer.token_to_id("."), source_end=16, sentence_end=True
    )


def test_sentence_ends_are_marked(tokenizers: dict[str, TextTokenizer]) -> None:
    source = "Dr. Lee paid $3.50 at 4 p.m. today. Then? He left"
    for name, rules in (("demo", ENGLISH), ("qwen2", TextRules())):
        tokens = spoken(rules, tokenizers[name], source)
        marked = [source[: token.source_end] for token in tokens if token.sentence_end]
        assert marked == [source[: source.index(" Then")], source[: source.index(" He")]]


def test_flush_returns_everything_and_begins_new_text(tokenizers: dict[str, TextTokenizer]) -> None:
    demo = tokenizers["demo"]
    text = UtteranceText(ENGLISH, demo, 1000)
    first = text.push("see you at 4") + text.flush()
    assert [token.id for token in first] == [token.id for token in spoken(ENGLISH, demo, "see you at 4")]
    assert first[-1].source_end == 12
    assert text.flush() == []
    second = text.push(" bye") + text.end()
    assert [token.id for token in second] == [token.id for token in spoken(ENGLISH, demo, "bye")]
    assert second[-1].source_end == 16
    assert text.source == "see you at 4 bye"


@pytest.mark.parametrize("source", ["", "  \n", "Привет", "😀", "\x00", "<|im_end|>"])
def test_end_of_text_without_tokens_raises_empty_text(tokenizers: dict[str, TextTokenizer], source: str) -> None:
    text = UtteranceText(ENGLISH, tokenizers["demo"], 1000)
    assert text.push(source) == []
    with pytest.raises(EmptyText):
        text.end()


def test_flushed_tokens_prevent_empty_text(tokenizers: dict[str, TextTokenizer]) -> None:
    text = UtteranceText(ENGLISH, tokenizers["demo"], 1000)
    text.push("yes")
    assert text.flush()
    assert text.end() == []


def test_fragment_beyond_limit_is_refused_completely(tokenizers: dict[str, TextTokenizer]) -> None:
    text = UtteranceText(ENGLISH, tokenizers["demo"], 10)
    text.push("hello ")
    with pytest.raises(TextTooLong) as error:
        text.push("there")
    assert (error.value.limit, error.value.received) == (10, 11)
    assert text.characters == 6
    assert text.source == "hello "
    assert text.push("you ")


def test_normalisation_applies_only_without_spoken_form(tokenizers: dict[str, TextTokenizer]) -> None:
    tokenizer = tokenizers["qwen2"]

    def ids(rules: TextRules, source: str, normalise: str | None) -> list[int]:
        text = UtteranceText(rules, tokenizer, 100, normalise)
        return [token.id for token in text.push(source) + text.end()]

    plain = TextRules()
    assert ids(plain, "5 km", "english") == ids(plain, "five kilometers", None)
    assert ids(plain, "5 km", "klingon") == ids(plain, "5 km", None) != ids(plain, "5 km", "auto")
    assert ids(ENGLISH, "5 km", "german") == ids(ENGLISH, "5 km", None)
