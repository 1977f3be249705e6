# ruff: noqa: RUF001 - punctuation and letters of many scripts are the subject here.
from __future__ import annotations

import pytest
from voxgate.pipeline.text.sentences import ends_sentence


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
def test_ends_here(text: str) -> None:
    at = text.index("|")
    assert ends_sentence(text.replace("|", ""), at)


@pytest.mark.parametrize(
    "text",
    [
        *["3.|14", "Dr. |Smith", "J. |Smith", "e.g. |this", "at 5 p.m. |we", "U.S. |law", "\n1. |First"],
        *["word,| then", "example.|com", "Really?|!", "你好。|”他说", "It is.|", "so |it", "1. |First"],
    ],
)
def test_does_not_end_here(text: str) -> None:
    at = text.index("|")
    assert not ends_sentence(text.replace("|", ""), at)
