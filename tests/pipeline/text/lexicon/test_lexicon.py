"""Which term is found where."""

from __future__ import annotations

import pytest
from voxgate.pipeline.text.lexicon.lexicon import Lexicon, LexiconRule, Match, SearchText


def found(lexicon: Lexicon, text: str, at: int = 0, *, final: bool = True) -> str | bool:
    before = text[at - 1] if at else ""
    match = lexicon.find(SearchText.of(text), at, before, final=final)
    return text[at : match.end] if isinstance(match, Match) else match


@pytest.mark.parametrize(
    ("term", "text", "expected"),
    [
        ("SQL", "sql.", "sql"),
        ("SQL", "sqlite", False),
        ("SQL", "SQL_x", False),
        ("C++", "c++11", "c++"),
        ("New York", "new\nyork!", "new\nyork"),
        (" SQL ", "sql", "sql"),
        ("é", "É", "É"),
        ("straße", "STRAßE.", "STRAßE"),
        ("東京", "東京都", "東京"),
        ("§", "§4", "§"),
    ],
)
def test_terms_are_whole_words_in_any_case(term: str, text: str, expected: str | bool) -> None:
    assert found(Lexicon([LexiconRule(term, "x")]), text) == expected


def test_term_does_not_begin_within_a_word_unless_it_may() -> None:
    assert found(Lexicon([LexiconRule("SQL", "x")]), "MySQL", 2) is False
    assert found(Lexicon([LexiconRule("SQL", "x", word_boundaries=False)]), "MySQLite", 2) == "SQL"


def test_case_sensitive_term_comes_first_and_the_first_rule_of_a_term_counts() -> None:
    rules = [
        LexiconRule("us", "any"),
        LexiconRule("US", "second"),
        LexiconRule("US", "exact", case_sensitive=True),
        LexiconRule("US", "late", case_sensitive=True),
    ]
    lexicon = Lexicon(rules)

    def spoken(text: str) -> str:
        match = lexicon.find(SearchText.of(text), 0, "", final=True)
        assert isinstance(match, Match)
        return match.rule.spoken

    assert (spoken("US"), spoken("us"), spoken("Us")) == ("exact", "any", "any")


def test_longest_term_counts_and_is_waited_for() -> None:
    lexicon = Lexicon([LexiconRule("New", "x"), LexiconRule("New York", "y"), LexiconRule("New York City", "z")])
    assert found(lexicon, "New", final=False) is True
    assert found(lexicon, "New Yo", final=False) is True
    assert found(lexicon, "New Years") == "New"
    assert found(lexicon, "New York", final=False) is True
    assert found(lexicon, "New York C.", final=False) == "New York"
    assert found(lexicon, "New York City", final=False) is True, "a letter may follow"
    assert found(lexicon, "New York City", final=True) == "New York City"
    assert found(lexicon, "Old", final=False) is False


@pytest.mark.parametrize(
    ("term", "spoken"),
    [("", "x"), ("  ", "x"), ("x", " "), ("x" * 49, "x"), ("x", "y" * 129), ("a\x01b", "x"), ("x", "\x1f")],
)
def test_rules_outside_the_limits_are_refused(term: str, spoken: str) -> None:
    with pytest.raises(ValueError, match="must"):
        LexiconRule(term, spoken)
