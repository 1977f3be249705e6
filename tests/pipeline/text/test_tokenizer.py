"""Loading a checkpoint's tokenizer, and its pieces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from voxgate.pipeline.text.tokenizer import TextTokenizer, build_tokenizer, load_tokenizer


def ids(tokenizer: TextTokenizer, text: str) -> list[int]:
    return list(tokenizer.tokenizer.encode(text, add_special_tokens=False).ids)


def written(tokenizer: TextTokenizer, folder: Path, *, added: dict[int, str]) -> Path:
    """The files of a published checkpoint without `tokenizer.json`."""
    tokenizer.tokenizer.model.save(str(folder))
    decoder = {str(id_): {"content": content, "special": True} for id_, content in added.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": decoder}))
    return folder


def test_tokenizer_is_built_from_vocabulary_and_merges(tokenizers: dict[str, TextTokenizer], tmp_path: Path) -> None:
    known = tokenizers["qwen2"]
    size = known.tokenizer.get_vocab_size(with_added_tokens=False)
    folder = written(known, tmp_path, added={size + 1: "<|im_end|>", size: "<|im_start|>"})
    loaded = load_tokenizer(folder)
    for text in ("hello there, don't", "今天天气很好。", "OpenAI e\u0301t\u00e9\n\n 123"):
        assert ids(loaded, text) == ids(known, text)
    assert ids(loaded, "<|im_end|>") == [size + 1]
    assert loaded.control_tokens == ("<|im_end|>", "<|im_start|>")


def test_piece_pattern_can_be_chosen(tokenizers: dict[str, TextTokenizer], tmp_path: Path) -> None:
    folder = written(tokenizers["qwen2"], tmp_path, added={})
    cuts = {
        pattern: [piece.symbols for piece in load_tokenizer(folder, pattern=pattern).pieces("OpenAI", at_start=True)]
        for pattern in ("qwen2", "mistral")
    }
    assert cuts == {"qwen2": ["OpenAI"], "mistral": ["Open", "AI"]}
    tokenizers["qwen2"].tokenizer.save(str(tmp_path / "tokenizer.json"))
    replaced = load_tokenizer(tmp_path, pattern="mistral").pieces("iPhone", at_start=True)
    assert [piece.symbols for piece in replaced] == ["i", "Phone"]


def test_added_token_with_other_id_is_refused() -> None:
    with pytest.raises(ValueError, match="must have the id 7"):
        build_tokenizer({"a": 0}, [], {"7": {"content": "<x>", "special": True}})


def test_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_tokenizer(tmp_path)


def test_tokenizer_other_than_bpe_is_refused() -> None:
    with pytest.raises(ValueError, match="BPE"):
        TextTokenizer(Tokenizer(WordLevel({"a": 0}, "a")))


def test_prefix_space_is_added_at_start_only(tokenizers: dict[str, TextTokenizer]) -> None:
    demo = tokenizers["demo"]
    assert demo.adds_prefix_space
    assert not tokenizers["qwen2"].adds_prefix_space
    assert [piece.symbols for piece in demo.pieces("Hé, a", at_start=True)] == ["Ġhe", ",", "Ġa"]
    assert [piece.symbols for piece in demo.pieces("Hé, a", at_start=False)] == ["he", ",", "Ġa"]


def test_pieces_have_their_spans(tokenizers: dict[str, TextTokenizer]) -> None:
    pieces = tokenizers["qwen2"].pieces("e\u0301t \u4eca", at_start=True)
    assert [(piece.start, piece.end) for piece in pieces] == [(0, 3), (3, 5)]


def test_characters_of_one_token_can_join(tokenizers: dict[str, TextTokenizer]) -> None:
    qwen2 = tokenizers["qwen2"]
    assert len(ids(qwen2, "今天")) == 1
    assert qwen2.can_join("今", "天")
    assert not qwen2.can_join("天", "公")


def test_any_characters_can_join_in_incomplete_vocabulary(tokenizers: dict[str, TextTokenizer]) -> None:
    assert tokenizers["demo"].can_join("天", "公")  # both are dropped, which makes their neighbours adjacent
