"""The demo voice's tokenizer, and small tokenizers built like Qwen2's, trained on sentences in several scripts."""

# ruff: noqa: RUF001 - punctuation and letters of many scripts are the subject here.
from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.normalizers import NFC
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from tokenizers.trainers import BpeTrainer
from voxgate.pipeline.text.tokenizer import PATTERNS, Pattern, TextTokenizer, load_tokenizer

DEMO = Path(__file__).parents[3] / "voices" / "demo"

SENTENCES = [
    "the quick brown fox don't we'll they've I'm he'd said it's THE QUICK OpenAI iPhone",
    "hello world 123\n\nyes... no?! (so) well-known; it is, hello there",
    "今天天气很好，我们去公园吧。你好世界！我们今天很好",
    "こんにちは世界、テレビを見る。これはテレビです",
    "안녕하세요 세계 안녕",
    "été café naïve привет мир",
] * 5


def _train(pattern: Pattern) -> TextTokenizer:
    from tokenizers import Regex

    tokenizer = Tokenizer(BPE())
    tokenizer.normalizer = NFC()
    split = Split(Regex(PATTERNS[pattern]), behavior="isolated")
    tokenizer.pre_tokenizer = Sequence([split, ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = BpeTrainer(vocab_size=520, initial_alphabet=ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>", "<tts_pad>", "<tts_text_bos>"])
    return TextTokenizer(tokenizer)


@pytest.fixture(scope="session")
def demo_folder() -> Path:
    return DEMO


@pytest.fixture(scope="session")
def tokenizers() -> dict[str, TextTokenizer]:
    """By name: demo (GPT-2 pieces, prefix space, no accents), qwen2 and mistral (NFC)."""
    return {"demo": load_tokenizer(DEMO), "qwen2": _train("qwen2"), "mistral": _train("mistral")}
