"""SSML elements."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Apply = Callable[..., tuple[list[str | int], tuple[str, ...]]]


@pytest.mark.parametrize(
    ("tag", "ms"),
    [
        *[('<break time="1.5s"/>', 1500), ("<break time='500ms' />", 500), ('<BREAK TIME="2s">', 2000)],
        *[('<break time="0.25"/>', 250), ("<break/>", 500), ('<break strength="strong"/>', 750)],
        *[('<break\ntime = "1s"\n/>', 1000), ('<break strength="none" time="1s"/>', 1000)],
    ],
)
def test_break_is_a_pause(apply: Apply, tag: str, ms: int) -> None:
    assert apply(f"One{tag}two", "ssml") == (["One ", ms, "two"], ())


def test_break_with_an_end_tag_is_one_pause(apply: Apply) -> None:
    assert apply('One <break time="1s"></break> two', "ssml") == (["One ", 1000, " two"], ())


def test_break_without_a_valid_time_is_reported(apply: Apply) -> None:
    runs, (notice,) = apply('One <break time="soon"/>two', "ssml")
    assert runs == ["One two"]
    assert "not a duration" in notice


def test_alias_is_spoken(apply: Apply) -> None:
    text = 'The <sub alias="World Wide Web &amp; more">WWW</sub> rules'
    assert apply(text, "ssml") == (["The World Wide Web & more rules"], ())


def test_alias_without_an_end_tag_replaces_a_bounded_text(apply: Apply) -> None:
    runs, _ = apply('<sub alias="x">' + "word " * 200, "ssml")
    assert isinstance(runs[0], str)
    assert 400 < len(runs[0]) < 600


def test_characters_are_spelled(apply: Apply) -> None:
    text = 'Code <say-as interpret-as="characters">AB1-2</say-as>, <say-as interpret-as="cardinal">12</say-as>.'
    assert apply(text, "ssml") == (["Code A B 1 -2 , 12."], ())


def test_paragraphs_and_sentences_are_divided(apply: Apply) -> None:
    text = '<?xml version="1.0"?><speak><p>One</p><p>Two</p><s>Three</s></speak>'
    assert apply(text, "ssml", "html") == (["One\n\nTwo\n\nThree\n\n"], ())


@pytest.mark.parametrize("name", ["emphasis", "phoneme", "voice", "lang", "mstts:express-as"])
def test_element_that_is_not_honoured_is_reported_once(apply: Apply, name: str) -> None:
    runs, notices = apply(f'<{name} a="b">Yes</{name}> <{name} a="b">no</{name}>', "ssml")
    assert runs == ["Yes no"]
    assert notices == (f"<{name}> is not supported and was ignored",)


def test_prosody_that_is_ignored_is_reported_by_attribute(apply: Apply) -> None:
    runs, notices = apply('<prosody contour="(0%,+2st)" pitch="+2st">Yes</prosody>', "ssml")
    assert runs == ["Yes"]
    assert [notice.split(" is ")[0] for notice in notices] == ["<prosody contour>", "<prosody pitch>"]


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ('rate="slow"', (0.8, 1.0)),
        ('rate="X-Fast"', (1.5, 1.0)),
        ('rate="120%"', (1.2, 1.0)),
        ('rate="+20%"', (1.2, 1.0)),
        ('rate="-25 %"', (0.75, 1.0)),
        ("rate='1.5'", (1.5, 1.0)),
        ('volume="soft"', (1.0, 0.5)),
        ('volume="silent"', (1.0, 0.0)),
        ('volume="50"', (1.0, 0.5)),
        ('volume="+50%"', (1.0, 1.5)),
        ('volume="-6.0206dB"', (1.0, 0.5)),
        ('rate="fast" volume="loud"', (1.25, 1.4)),
    ],
)
def test_prosody_values(apply: Apply, attribute: str, expected: tuple[float, float]) -> None:
    runs, notices = apply(f"So, <prosody {attribute}>yes</prosody> indeed.", "ssml")
    assert [runs[0], runs[2:]] == ["So, ", ["yes ", (1.0, 1.0), "indeed."]]
    assert runs[1] == pytest.approx(expected)
    assert not notices


@pytest.mark.parametrize("value", ['rate="quickly"', 'rate="-20"', 'volume="+6"', 'rate="1e3"', 'volume="9%%"'])
def test_unknown_prosody_value_changes_nothing(apply: Apply, value: str) -> None:
    runs, notices = apply(f"<prosody {value}>Yes</prosody> no", "ssml")
    assert runs == ["Yes no"]
    assert "unknown value" in notices[0]


def test_prosody_is_relative_to_what_is_around_it(apply: Apply) -> None:
    text = '<prosody rate="80%">a <prosody rate="50%" volume="soft">b</prosody> c</prosody> d</prosody>'
    runs, notices = apply(text, "ssml")
    assert runs == [(0.8, 1.0), "a ", (0.5, 0.5), "b ", (0.8, 1.0), "c ", (1.0, 1.0), "d"]
    assert "at least 0.5 and at most 2" in notices[0]


def test_marks_behind_a_word_keep_its_prosody(apply: Apply) -> None:
    runs, _ = apply('<prosody rate="slow">Really</prosody>?" She <prosody rate="slow">said</prosody> "no".', "ssml")
    assert runs == [(0.8, 1.0), 'Really?" ', (1.0, 1.0), "She ", (0.8, 1.0), "said ", (1.0, 1.0), '"no".']


def test_prosody_without_words_has_no_effect(apply: Apply) -> None:
    assert apply('One. <prosody rate="slow"> </prosody>Two <prosody rate="medium">three</prosody>', "ssml")[0] == [
        "One.  Two three"
    ]


def test_prosody_of_an_entity_and_an_alias(apply: Apply) -> None:
    text = '<prosody rate="slow">&amp;</prosody> <prosody rate="fast"><sub alias="two">2</sub></prosody>'
    assert apply(text, "ssml")[0] == [(0.8, 1.0), "& ", (1.25, 1.0), "two"]


def test_unknown_element_is_prose_without_html(apply: Apply) -> None:
    assert apply("vector<int> x", "ssml") == (["vector<int> x"], ())
