"""Pronunciation Lexicon Specification: files of other tools."""

from __future__ import annotations

import pytest
from voxgate.pipeline.errors import VoxgateError
from voxgate.pipeline.text.lexicon.lexicon import LexiconRule
from voxgate.pipeline.text.lexicon.pls import parse_pls, write_pls

NAMESPACE = 'xmlns="http://www.w3.org/2005/01/pronunciation-lexicon"'
LEXEME = "<lexeme><grapheme>SQL</grapheme><grapheme>sql</grapheme><alias>sequel</alias></lexeme>"


@pytest.mark.parametrize("namespace", [NAMESPACE, ""])
def test_each_grapheme_is_a_rule(namespace: str) -> None:
    file = f'<?xml version="1.0"?><lexicon version="1.0" {namespace}>{LEXEME}</lexicon>'.encode()
    assert parse_pls(file) == [LexiconRule("SQL", "sequel", True), LexiconRule("sql", "sequel", True)]


def test_written_files_are_read() -> None:
    rules = [LexiconRule("A & B", "<a and b>", True), LexiconRule("東京", "Tokyo", True)]
    assert parse_pls(write_pls(rules)) == rules


@pytest.mark.parametrize(
    ("file", "code", "words"),
    [
        (
            "<lexicon><lexeme><grapheme>a</grapheme><phoneme>ei</phoneme></lexeme></lexicon>",
            "unsupported_option",
            "IPA",
        ),
        ('<!DOCTYPE l [<!ENTITY a "b">]><lexicon/>', "bad_message", "document type"),
        ("<lexicon>", "bad_message", "not XML"),
        ("", "bad_message", "not XML"),
        (f"<lexicon>{LEXEME * 600}</lexicon>", "bad_message", "1000"),
        ("<lexicon><lexeme><grapheme> </grapheme><alias>x</alias></lexeme></lexicon>", "bad_message", "blank"),
    ],
)
def test_other_files_are_refused_in_words(file: str, code: str, words: str) -> None:
    with pytest.raises(VoxgateError, match=words) as refused:
        parse_pls(file.encode())
    assert refused.value.code == code


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-be"])
def test_a_document_type_is_refused_in_any_encoding(encoding: str) -> None:
    file = f'<?xml version="1.0" encoding="{encoding[:6]}"?><!DOCTYPE l [<!ENTITY a "b">]><lexicon>{LEXEME}</lexicon>'
    with pytest.raises(VoxgateError, match="document type"):
        parse_pls(file.encode(encoding))


def test_files_of_other_encodings_are_read() -> None:
    file = f'<?xml version="1.0" encoding="utf-16"?><lexicon>{LEXEME}</lexicon>'
    assert parse_pls(file.encode("utf-16"))[0] == LexiconRule("SQL", "sequel", True)
