"""CharacterTimes get the times of their words."""

from __future__ import annotations

import random

from voxgate.gateway.messages.server import WordFields
from voxgate.gateway.protocols.elevenlabs.character_alignment import CharacterAlignment, CharacterTimes


def word(text: str, start: int, start_ms: int, end_ms: int) -> WordFields:
    return WordFields(text=text, start=start, end=start + len(text), start_ms=start_ms, end_ms=end_ms)


WORDS = (word("Hi", 0, 100, 300), word("you,", 3, 400, 800), word("two", 8, 900, 1200))
FIRST = [*"Hi you, "], [100, 200, 300, 400, 500, 600, 700, 800], [100, 100, 0, 100, 100, 100, 100, 0]


def runs(*, absolute: bool) -> list[CharacterTimes | None]:
    alignment = CharacterAlignment(absolute=absolute)
    alignment.add_text("Hi you,\n")
    alignment.add_text("two")
    alignment.add_words(WORDS)
    return [
        alignment.take_until(50),
        alignment.take_until(410),
        alignment.take_until(900),
        alignment.take_rest(),
        alignment.take_rest(),
    ]


def test_absolute_times_are_those_of_the_words() -> None:
    last = CharacterTimes([*"two "], [900, 1000, 1100, 1200], [100, 100, 100, 0])
    assert runs(absolute=True) == [None, CharacterTimes(*FIRST), None, last, None]


def test_relative_times_count_from_the_end_of_the_run_before() -> None:
    last = CharacterTimes([*"two "], [100, 200, 300, 400], [100, 100, 100, 0])
    assert runs(absolute=False) == [None, CharacterTimes(*FIRST), None, last, None]


def test_text_of_markup_alone_has_no_alignment() -> None:
    alignment = CharacterAlignment(absolute=True)
    alignment.add_text('<break time="1s"/>')
    assert alignment.take_until(1e9) is None
    assert alignment.take_rest() is None


def spoken(text: str, *words: tuple[str, str]) -> str:
    """The characters of an alignment; `words`: each word as it is spoken, and where it stands in `text`."""
    alignment = CharacterAlignment(absolute=True)
    alignment.add_text(text)
    offset, characters = 0, ""
    for n, (said, written) in enumerate(words):
        start = text.index(written, offset if written != words[n - 1][1] else 0)
        offset = start + len(written)
        fields = WordFields(text=said, start=start, end=offset, start_ms=100 * n, end_ms=100 * n + 50)
        alignment.add_words([fields])
        if (run := alignment.take_until(100 * n + 1)) is not None:
            characters += "".join(run.characters)
    if (run := alignment.take_rest()) is not None:
        characters += "".join(run.characters)
    assert alignment.take_rest() is None
    return characters


def test_markup_is_not_aligned() -> None:
    plain = [("Hi", "Hi"), ("you", "you")]
    assert spoken('Hi <break time="1s" /> you', *plain) == "Hi you "
    assert spoken('<speak>Hi<break time="1s"/>you</speak>', *plain) == "Hi you "
    assert spoken("Hi **you** ", *plain) == "Hi you "
    assert spoken("Hi you [laughs]", *plain) == "Hi you "
    assert spoken("So-**called** it", ("So-called", "So-**called**"), ("it", "it")) == "So-called it "


def test_alias_is_aligned_as_it_is_spoken() -> None:
    words = [("The", "The"), ("World", "WWW"), ("Wide", "WWW"), ("Web", "WWW"), ("is", "is")]
    assert spoken('The <sub alias="World Wide Web">WWW</sub> is', *words) == "The World Wide Web is "


def test_scripts_without_blanks_get_none() -> None:
    assert spoken("你**好**吗", ("你", "你"), ("好", "好"), ("吗", "吗")) == "你好吗 "


def test_any_order_of_words_and_audio_gives_the_text_and_consistent_times() -> None:
    chance = random.Random(5)
    for _ in range(300):
        spoken = ["x" * chance.randrange(1, 6) for _ in range(chance.randrange(1, 12))]
        text = "".join(each + chance.choice([" ", "\n", "  "]) for each in spoken)
        clocks = [CharacterAlignment(absolute=True), CharacterAlignment(absolute=False)]
        sums: list[list[float]] = [[], []]
        joined = ["", ""]
        at_ms, offset, base_ms, sent = 0, 0, 0, 0
        for each in spoken:
            start = text.index(each, offset)
            offset = start + len(each)
            begin_ms = at_ms + chance.randrange(300)
            at_ms = begin_ms + chance.randrange(1, 500)
            known = max(offset, min(len(text), sent + chance.randrange(9)))
            for clock in clocks:
                clock.add_text(text[sent:known])
                clock.add_words([word(each, start, begin_ms, at_ms)])
            sent = known
            until_ms = at_ms - chance.randrange(1000)
            for i, clock in enumerate(clocks):
                if (run := clock.take_until(until_ms)) is not None:
                    joined[i] += "".join(run.characters)
                    sums[i] += [t + base_ms * i for t in run.starts_ms]
                    base_ms += (run.starts_ms[-1] + run.durations_ms[-1]) * i
        for i, clock in enumerate(clocks):
            clock.add_text(text[sent:])
            if (run := clock.take_rest()) is not None:
                joined[i] += "".join(run.characters)
                sums[i] += [t + base_ms * i for t in run.starts_ms]
        assert joined[0] == joined[1] == text.replace("\n", " ")
        assert sums[0] == sums[1] == sorted(sums[0])
