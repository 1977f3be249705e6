"""Sanitising: control tokens, control characters, surrogates, and endless runs."""

from __future__ import annotations

import random

import pytest
from voxgate.pipeline.text.sanitize import MAX_MARKS, MAX_RUN, Sanitizer, join_halves, stand_in

TOKENS = ("<|im_end|>", "<|im_start|>", "<tts_pad>")


def clean(*fragments: str, trim: bool = True) -> str:
    sanitizer = Sanitizer(TOKENS, trim=trim)
    return "".join(sanitizer.push(fragment).text for fragment in fragments) + sanitizer.flush().text


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("plain text", "plain text"),
        ("  \n lead", "lead"),
        ("trail ", "trail "),
        ("a<|im_end|>b", "a b"),
        ("<|im_end|>b", "b"),
        ("a<|im_<|im_end|>end|>b", "a<|im_ end|>b"),
        ("a<|im_\x00end|>b", "a b"),
        ("a<|im_en", "a<|im_en"),
        ("2 < 3", "2 < 3"),
        ("a\x00\x1b\x7fb", "ab"),
        ("a\x0b\x85b\tc\r\nd", "a  b\tc\r\nd"),
        ("\ufeffa\ufffe\ufdd0b", "ab"),
        ("\ud83d\ude00", "\U0001f600"),
        ("a\ud83db", "a\ufffdb"),
        ("a\ude00b\ud83d", "a\ufffdb\ufffd"),
        ("\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        ("👩\u200d🚀", "👩\u200d🚀"),
    ],
)
def test_text_is_cleaned(text: str, want: str) -> None:
    assert clean(text) == want
    assert clean(*text) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("  lead", "  lead"),
        ("\t \x0blead", "\t  lead"),
        # A line break before the text would be one token with the line break of the prompt.
        (" \n\r\n lead", " lead"),
        (" \n", ""),
        ("  ", ""),
        ("<|im_end|> b", "  b"),
        ("a \n", "a \n"),
    ],
)
def test_leading_white_space_is_kept_on_request(text: str, want: str) -> None:
    assert clean(text, trim=False) == want
    assert clean(*text, trim=False) == want


def test_kept_white_space_has_its_place_in_the_source() -> None:
    sanitizer = Sanitizer(TOKENS, trim=False)
    assert sanitizer.push("\n ").text == ""
    taken = sanitizer.push(" a")
    assert (taken.text, taken.ends) == ("  a", (2, 3, 4))
    assert sanitizer.push(" b").text == " b"
    sanitizer.flush()
    assert sanitizer.push("  c").text == "  c"


def test_no_control_token_remains_in_random_text() -> None:
    rng = random.Random(1)
    parts = ["<|im_end|>", "<|im_", "end|>", "<tts_pad>", "<tts", "_pad>", "<", "|", ">", "\x00", "a", " "]
    for _ in range(3000):
        text = "".join(rng.choices(parts, k=rng.randint(1, 8)))
        cleaned = clean(text)
        assert not any(token in cleaned for token in TOKENS), text
        places = sorted(rng.choices(range(len(text) + 1), k=3))
        cuts = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
        assert clean(*cuts) == cleaned


def test_prefix_of_control_token_is_held_back() -> None:
    sanitizer = Sanitizer(TOKENS)
    assert sanitizer.push("ab<|im").text == "ab"
    assert sanitizer.push("_e").text == ""
    assert sanitizer.push("x").text == "<|im_ex"


def test_characters_keep_their_source_offsets() -> None:
    sanitizer = Sanitizer(TOKENS)
    first = sanitizer.push("  a\x00b\ud83d")
    second = sanitizer.push("\ude00<tts_pad>c")
    assert (first.text, first.ends) == ("ab", (3, 5))
    assert (second.text, second.ends) == ("\U0001f600 c", (7, 16, 17))


def test_combining_marks_are_bounded() -> None:
    assert clean("e" + "\u0301" * 100_000 + "f") == "e" + "\u0301" * MAX_MARKS + "f"


def test_runs_of_one_kind_are_split() -> None:
    assert max(map(len, clean("a" * 5000).split())) == MAX_RUN
    assert max(map(len, clean("7" * 5000).split())) == MAX_RUN
    assert clean("a" + " " * 5000 + "b") == "a" + " " * MAX_RUN + "b"
    assert clean("ab " * 1000) == "ab " * 1000


def test_flush_begins_new_text() -> None:
    sanitizer = Sanitizer(TOKENS)
    assert sanitizer.push("a<|im").text == "a"
    assert sanitizer.flush().text == "<|im"
    assert sanitizer.push("  b").text == "b"


class CharacterwiseSanitizer(Sanitizer):
    """Has no shortcut for plain fragments."""

    def _is_plain(self, fragment: str) -> bool:  # noqa: ARG002 - overrides a method
        return False


def test_shortcut_for_plain_fragments_changes_nothing() -> None:
    rng = random.Random(3)
    parts = ("a", "12", " ", "|", "<|im_end|>", "<|im", "_end|>", "\u0301", "\n", "é", "\ud800", "\udc00", "\x07")
    longer = ("hello there, you. ", "x" * 200, " " * 300, "9" * 170)
    for _ in range(2000):
        quick, slow = Sanitizer(["<|im_end|>", "<tts_pad>"]), CharacterwiseSanitizer(["<|im_end|>", "<tts_pad>"])
        for _ in range(rng.randrange(1, 8)):
            fragment = "".join(rng.choices(rng.choice((parts, longer)), k=rng.randrange(1, 6)))
            assert quick.push(fragment) == slow.push(fragment)
        assert quick.flush() == slow.flush()


def test_stand_ins_of_halves_are_joined_as_halves_are() -> None:
    high, low = stand_in(0xD83D), stand_in(0xDE00)
    assert f"{high}{low}".encode(), "UTF-8 has them"
    assert clean(f"a {high}", f"{low} b") == clean("a \U0001f600 b")
    assert clean(f"a {high} b") == clean("a \ufffd b")
    assert clean(f"{low} b {high}") == "\ufffd b \ufffd"
    assert clean(f"a {high}", "\ude00 b") == clean("a \U0001f600 b"), "whichever of the two stands for itself"


def test_text_to_read_has_the_characters_of_stand_ins() -> None:
    high, low = stand_in(0xD83D), stand_in(0xDE00)
    assert join_halves(f"ä{high}{low}b") == "ä\U0001f600b"
    assert join_halves(f"{low}{high}") == "\ufffd\ufffd"
    assert join_halves(unchanged := "\U0010efff\U0010f800 ä") == unchanged
