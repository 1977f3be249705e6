"""Token ids of whole prompts, in both settings of the reference (docs/qwen3_tts.md)."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from family_cases import TOKENIZED
from small_tokenizer import write_tokenizer
from voxgate.pipeline.checkpoint.voice_config import TextRules
from voxgate.pipeline.text.incremental_tokenizer import IncrementalTokenizer
from voxgate.pipeline.text.tokenizer import Pattern, TextTokenizer, load_tokenizer
from voxgate.pipeline.text.utterance_text import UtteranceText

from .conftest import ReferenceRecording

LARGE = 100_200


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder, LARGE)
    return folder


@pytest.fixture(scope="module", params=["qwen2", "mistral"])
def pattern(request: pytest.FixtureRequest) -> Pattern:
    chosen: Pattern = request.param
    return chosen


@pytest.fixture(scope="module")
def tokenizer(large: Path, pattern: Pattern) -> TextTokenizer:
    return load_tokenizer(large, pattern=pattern)


@pytest.mark.parametrize("number", range(len(TOKENIZED)))
def test_tokens_equal_the_reference(
    recorded: Callable[[str], ReferenceRecording], tokenizer: TextTokenizer, pattern: Pattern, number: int
) -> None:
    ids = recorded("tokens")[f"{pattern}/{number}"].tolist()
    control = tokenizer.tokenizer.token_to_id
    newline, assistant = tokenizer.encode_plain("\n")[0], control("assistant")
    role = [control("<|im_start|>"), assistant, newline]
    assert ids[:3] == role
    assert ids[-5:] == [control("<|im_end|>"), newline, *role]
    assert tokenizer.encode_plain(TOKENIZED[number]) == ids[3:-5]


@pytest.mark.parametrize("number", range(len(TOKENIZED)))
def test_tokens_of_text_in_pieces_equal_the_reference(
    recorded: Callable[[str], ReferenceRecording], tokenizer: TextTokenizer, pattern: Pattern, number: int
) -> None:
    text, rng = TOKENIZED[number], random.Random(number)
    expected = recorded("tokens")[f"{pattern}/{number}"].tolist()[3:-5]
    for _ in range(20):
        incremental, tokens, at = IncrementalTokenizer(tokenizer), [], 0
        while at < len(text):
            step = rng.randrange(1, 5)
            tokens += incremental.push(text[at : at + step])
            at += step
        tokens += incremental.flush()
        assert [token.id for token in tokens] == expected


@pytest.mark.parametrize("number", range(len(TOKENIZED)))
def test_tokens_of_a_client_s_text_equal_the_reference(
    recorded: Callable[[str], ReferenceRecording], tokenizer: TextTokenizer, pattern: Pattern, number: int
) -> None:
    expected = recorded("tokens")[f"{pattern}/{number}"].tolist()[3:-5]
    text = UtteranceText(TextRules(trim=False), tokenizer, 1000)
    assert [token.id for token in [*text.push(TOKENIZED[number]), *text.end()]] == expected


def test_tokens_of_the_two_settings_differ(recorded: Callable[[str], ReferenceRecording]) -> None:
    tokens = recorded("tokens")
    same = [tokens[f"qwen2/{n}"].tolist() == tokens[f"mistral/{n}"].tolist() for n in range(len(TOKENIZED))]
    assert any(same)
    assert not all(same)
