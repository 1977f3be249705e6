"""Tokens from fragments equal those of the whole text."""

# ruff: noqa: RUF001 - punctuation and letters of many scripts are the subject here.
from __future__ import annotations

import os
import random

import pytest
from voxgate.pipeline.text.incremental_tokenizer import IncrementalTokenizer
from voxgate.pipeline.text.tokenizer import Piece, TextTokenizer

FRAGMENTATIONS = int(os.environ.get("VOXGATE_TEST_FUZZ", "100000"))
"""Over all three tokenizers; a longer test sets a million or more."""

ALPHABET = [
    *"abcdeÉtTIsSrRlLvVmM'’.,!?-/=< \n\r\t123½①™℃éß",
    *["'s", "'LL", "'re", "don't", "İ", "Ǆ", "ſ", "ª", "  ", "\n\n", " \n"],
    *"今天气我们很你好，。",
    *["こ", "か", "が", "\u3099", "テ", "レ", "ー", "안", "각", "\u1100", "\u1161", "\u11a8"],
    *["e\u0301", "\u0301", "\u0323", "\u0338", "\u0345", "\u200d", "\ufe0f", "\u00a0", "\u200b", "\u2028"],
    *["👩", "🏽", "К", "и", "\u0306", "ก", "ิ", "์", "ᾳ", "Å"],
]
WIDE = [*"今天气我们很好，去公园吧你世界こテレビか\u3099안녕a \nT'e。"]


def pushed(tokenizer: TextTokenizer, fragments: list[str]) -> list[tuple[int, int]]:
    incremental = IncrementalTokenizer(tokenizer)
    tokens = [token for fragment in fragments for token in incremental.push(fragment)]
    return [(token.id, token.end) for token in tokens + incremental.flush()]


def cut(text: str, rng: random.Random) -> list[str]:
    if rng.random() < 0.3:
        return list(text)
    places = sorted(rng.sample(range(len(text) + 1), min(rng.choice((1, 1, 2, 3)), len(text))))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


@pytest.mark.parametrize("name", ["demo", "qwen2", "mistral"])
def test_tokens_do_not_depend_on_fragments(tokenizers: dict[str, TextTokenizer], name: str) -> None:
    tokenizer = tokenizers[name]
    rng = random.Random(f"{name} {FRAGMENTATIONS}")
    done = 0
    while done < FRAGMENTATIONS // 3:
        letters = WIDE if rng.random() < 0.3 else ALPHABET
        text = "".join(rng.choices(letters, k=rng.randint(1, 10)))
        want = tokenizer.tokenizer.encode(text, add_special_tokens=False).ids
        whole = pushed(tokenizer, [text])
        assert [id_ for id_, _ in whole] == want, repr(text)
        for _ in range(12):
            fragments = cut(text, rng)
            assert pushed(tokenizer, fragments) == whole, fragments
            done += 1
        ends = [end for _, end in whole]
        assert ends == sorted(ends)
        assert not ends or ends[-1] <= len(text)


def final_part(tokenizer: TextTokenizer, text: str) -> str:
    """The part of `text` whose tokens are final after one push."""
    tokens = IncrementalTokenizer(tokenizer).push(text)
    return text[: tokens[-1].end] if tokens else ""


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("hello", ""),
        ("hello ", "hello"),
        ("hello wor", "hello"),
        ("hello,", "hello"),
        ("hello, ", "hello,"),
        ("don'", "don"),
        ("don't", "don"),
        ("don't ", "don't"),
        ("so.\n", "so"),
        ("so.\n\n ", "so"),
        ("12", "1"),
        ("e\u0301", ""),
    ],
)
def test_changeable_text_is_held_back(tokenizers: dict[str, TextTokenizer], text: str, want: str) -> None:
    assert final_part(tokenizers["qwen2"], text) == want


def test_tokens_within_chinese_run_become_final(tokenizers: dict[str, TextTokenizer]) -> None:
    text = "今天气世公园见吧好我"
    assert len(final_part(tokenizers["qwen2"], text)) >= 3
    assert final_part(tokenizers["qwen2"], "今天") == ""  # one token, which later text may extend


@pytest.mark.parametrize("character", ["a", "今", " "])
def test_work_for_endless_run_is_linear(
    tokenizers: dict[str, TextTokenizer], monkeypatch: pytest.MonkeyPatch, character: str
) -> None:
    examined = 0
    pieces, normal = TextTokenizer.pieces, TextTokenizer.normal

    def counted_pieces(self: TextTokenizer, text: str, *, at_start: bool) -> list[Piece]:
        nonlocal examined
        examined += len(text)
        return pieces(self, text, at_start=at_start)

    def counted_normal(self: TextTokenizer, char: str) -> str:
        nonlocal examined
        examined += 1
        return normal(self, char)

    monkeypatch.setattr(TextTokenizer, "pieces", counted_pieces)
    monkeypatch.setattr(TextTokenizer, "normal", counted_normal)
    for size in (1_000, 8_000):
        examined = 0
        incremental = IncrementalTokenizer(tokenizers["qwen2"])
        for _ in range(size):
            incremental.push(character)
        incremental.flush()
        assert size <= examined < 150 * size  # quadratic work would examine 4,000 times the longer text


def test_flush_begins_new_text_and_offsets_continue(tokenizers: dict[str, TextTokenizer]) -> None:
    incremental = IncrementalTokenizer(tokenizers["demo"])
    first = incremental.push("hello there") + incremental.flush()
    again = incremental.push("hello there") + incremental.flush()
    assert [token.id for token in again] == [token.id for token in first]
    assert [token.end for token in again] == [token.end + 11 for token in first]


def test_flush_with_trim_drops_trailing_white_space(tokenizers: dict[str, TextTokenizer]) -> None:
    incremental = IncrementalTokenizer(tokenizers["qwen2"])
    tokens = incremental.push("so. \n ") + incremental.flush(trim=True)
    want = tokenizers["qwen2"].tokenizer.encode("so.", add_special_tokens=False).ids
    assert [token.id for token in tokens] == want


def test_written_control_tokens_are_ordinary_text(tokenizers: dict[str, TextTokenizer]) -> None:
    control = tokenizers["qwen2"].tokenizer.token_to_id("<|im_end|>")
    incremental = IncrementalTokenizer(tokenizers["qwen2"])
    tokens = incremental.push("a<|im_end|>") + incremental.flush()
    assert tokens
    assert control not in [token.id for token in tokens]
