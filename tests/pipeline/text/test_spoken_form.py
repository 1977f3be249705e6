"""The forms of text for a voice: words and plain punctuation, or the text as written."""

# ruff: noqa: RUF001 - punctuation and letters of many scripts are the subject here.
from __future__ import annotations

import random

import pytest
from voxgate.pipeline.text.source_map import EMPTY, SourceMappedText
from voxgate.pipeline.text.spoken_form import SpokenForm, Verbatim


@pytest.mark.parametrize(
    ("text", "mark"),
    [("go", "."), ("go. ", ""), ('"Go!" ', ""), ("好。", ""), ("go,", "."), ("", ""), (" ", "")],
)
def test_closing_mark_is_added_to_unclosed_text(text: str, mark: str) -> None:
    form = Verbatim(".")
    given = SourceMappedText(text, tuple(range(1, len(text) + 1)))
    assert form.push(given) == given
    assert form.flush().text == mark
    assert form.flush() == EMPTY


def test_verbatim_without_closing_mark_adds_nothing() -> None:
    form = Verbatim()
    form.push(SourceMappedText("go", (1, 2)))
    assert form.flush() == EMPTY


def mapped(text: str, start: int = 0) -> SourceMappedText:
    return SourceMappedText(text, tuple(range(start + 1, start + len(text) + 1)))


def spoken(*fragments: str) -> tuple[str, tuple[int, ...]]:
    form, at, text, ends = SpokenForm(), 0, "", ()
    for fragment in fragments:
        out = form.push(mapped(fragment, at))
        at += len(fragment)
        text, ends = text + out.text, ends + out.ends
    out = form.flush()
    text, ends = text + out.text, ends + out.ends
    return text.rstrip(), ends


SPOKEN = r"""Hello, how can I help you today? → hello, how can i help you today?
no mark → no mark.
a comma, → a comma.
wait... what?! → wait, what?
It costs $4.50. → it costs four dollars and fifty cents.
It costs $5 million now → it costs five million dollars now.
It costs $5 more → it costs five dollars more.
It costs $5 mill → it costs five dollars mill.
“quoted” — it’s fine… → quoted, it's fine.
'Hello,' he said. 'Yes' → hello, he said. yes.
rock 'n' roll → rock n roll.
a well-known (old) one → a well known old one.
word,word.word → word, word. word.
Dr. John F. Kennedy at 4:15 pm → doctor john f kennedy at four fifteen p m.
Vitamin c. Then → vitamin c. then.
5 km & more → five kilometers and more.
café naïve → cafe naive.
Привет 今天 😀 — ... , ! a → a.
# Heading\n\n- item one\n- item two\n → heading. item one. item two.
Two:\n1. one\n2) two → two. one. one. two two.
wrapped\nin the middle,\n3 times → wrapped in the middle, three times.
Done!\n\nNext → done! next.
20 €, 5 * 3, 5 / 3 → twenty euros, five times three, five slash three.
5 – 6 pm, 1 - $2 → five to six p m, one to two dollars.
Step 1 - Open\n- 3 eggs\n> 4 → step one open. three eggs. four.
1 1/2 cups, 1 ½ → one and a half cups, one and a half.
https://a.io/b?c=d, ok → a dot io slash b question mark c equals d, ok."""


@pytest.mark.parametrize("line", SPOKEN.splitlines())
def test_text_has_spoken_form(line: str) -> None:
    text, want = line.replace("\\n", "\n").split(" → ")
    assert spoken(text)[0] == want
    assert spoken(*text)[0] == want


PARTS = [
    *"abcTIé'’.,!?;: \n-—…/&@%#*<>=!^$€12½²≠\u0301今",
    *["$4.50", "$3 ", "million", " millions", "4:15", "1980s", "Dr. ", " J. ", "e.g.", "3rd", " km", "USA"],
    *[" - ", " – ", "\n> ", "https://", "1/2"],
    *["don't", "12,345", "555-1234", " the ", "www.a.com", "x" * 70, "“", "”", "OK", "\n\n", "\n- ", "\n2. "],
]


def test_spoken_form_does_not_depend_on_fragments() -> None:
    rng = random.Random(2)
    for _ in range(1500):
        text = "".join(rng.choices(PARTS, k=rng.randint(1, 12)))
        want = spoken(text)
        assert list(want[1]) == sorted(want[1])
        for _ in range(3):
            places = sorted(rng.choices(range(len(text) + 1), k=rng.randint(1, 5)))
            cuts = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
            assert spoken(*cuts) == want, cuts
        assert spoken(*text) == want, text


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("hello", ""),
        ("hello,", "hello"),
        ("hello, t", "hello"),
        ("it is 3", "it is"),
        ("it is 3.", "it is"),
        ("it is 3. ", "it is three. "),
        ("for $5 ", "for"),
        ("for $5 m", "for"),
        ("for $5 mo", "for five dollars"),
        ("5 - ", "five"),
        ("hello, ", "hello"),
    ],
)
def test_changeable_text_is_held_back(text: str, want: str) -> None:
    assert SpokenForm().push(mapped(text)).text == want


def test_words_keep_their_source_offsets() -> None:
    text, ends = spoken("It is $4.50, ok")
    reached = {word: ends[text.index(word) + len(word) - 1] for word in text.rstrip(".").split()}
    assert reached["it"] == 2
    assert reached["is"] == 5
    assert 6 < reached["four"] < reached["dollars"] < reached["cents,"] == 12
    assert reached["ok"] == 15


def test_flush_begins_new_text() -> None:
    form = SpokenForm()
    assert form.push(mapped("one 2")).text == "one"
    assert form.flush().text == " two."
    assert form.push(mapped(" , three ", 5)).text == "three"
    assert form.flush().text == "."
    assert form.flush().text == ""
