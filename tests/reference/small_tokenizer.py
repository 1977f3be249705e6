"""A byte-level BPE of a few words, in the published file format, the same on both sides of the comparison."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>")
WORDS = (
    *("assistant", "user", "the", "The", "hello", "Hello", "world", "voice", "speak", "softly", "calm", "don", "train"),
    *(
        "OpenAI",
        "AI",
        "iPhone",
        "YouTube",
        "Tube",
        "nInE",
        "'tcha",
        "leaves",
        "at",
        "nine",
        "it",
        "rained",
        "all",
        "night",
        "cha",
        "and",
    ),
)


def byte_symbols() -> list[str]:
    """The printable character that stands for each byte (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(0x100 + hidden.index(byte)) for byte in range(256)]


def vocabulary(size: int = 0) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Byte-level BPE that builds each of WORDS from the left, padded to `size` with tokens that no text contains."""
    symbols, merges = byte_symbols(), []
    tokens = dict.fromkeys(symbols)
    for word in (*WORDS, *(f"\u0120{word}" for word in WORDS), "\u0120\u0120", "'t", "\u010a\u010a"):
        for end in range(2, len(word) + 1):
            if word[:end] not in tokens:
                tokens[word[:end]] = None
                merges.append((word[: end - 1], word[end - 1]))
    tokens |= dict.fromkeys(f"\u0120{number:07}" for number in range(size - len(tokens)))
    return {token: number for number, token in enumerate(tokens)}, merges


def control_ids(vocabulary_size: int) -> dict[str, int]:
    return {token: vocabulary_size + number for number, token in enumerate(CONTROL_TOKENS)}


def write_tokenizer(folder: Path, size: int = 0) -> dict[str, int]:
    """Write vocab.json, merges.txt and tokenizer_config.json as published. Returns the whole vocabulary."""
    tokens, merges = vocabulary(size)
    control = control_ids(len(tokens))
    flags = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}
    write_json(folder / "vocab.json", tokens)
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges), ""]
    (folder / "merges.txt").write_text("\n".join(lines), encoding="utf-8")
    write_json(
        folder / "tokenizer_config.json",
        {
            "add_prefix_space": False,
            "added_tokens_decoder": {str(id_): {"content": token, **flags} for token, id_ in control.items()},
            "additional_special_tokens": list(CONTROL_TOKENS[1:]),
            "clean_up_tokenization_spaces": False,
            "eos_token": "<|im_end|>",
            "errors": "replace",
            "model_max_length": 131072,
            "pad_token": "<|endoftext|>",
            "split_special_tokens": False,
            "tokenizer_class": "Qwen2Tokenizer",
            "unk_token": None,
        },
    )
    return tokens | control


def write_json(path: Path, document: Any) -> None:
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False), encoding="utf-8")
