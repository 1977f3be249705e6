"""Step: trains the tokenizer of the text. `python -m train.text.tokens W`

A small byte-level BPE without capitals and accents, whose first tokens are the control tokens.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

VOCABULARY = 2048
SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|assistant|>",
    "<|nl|>",
    "<tts_pad>",
    "<tts_text_bos>",
    "<tts_text_eod>",
]
"""In order of their ids, which config.json names."""
ALPHABET = "abcdefghijklmnopqrstuvwxyz',.?!;:\u0120"
MAX_TOKEN_CHARACTERS = 12


def train(lines: list[str]) -> Tokenizer:
    """Train a tokenizer on sentences in their spoken form."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL,
        initial_alphabet=list(ALPHABET),
        max_token_length=MAX_TOKEN_CHARACTERS,
        show_progress=False,
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def main(work: Path) -> None:
    lines = [line.split("\t", 1)[1] for line in (work / "text/train.txt").read_text("utf-8").splitlines()]
    tokenizer = train(lines)
    tokenizer.save(str(work / "text/tokenizer.json"), pretty=False)
    sample = lines[:20_000]
    ids = sum(len(encoding.ids) for encoding in tokenizer.encode_batch(sample))
    characters = sum(map(len, sample))
    print(f"{tokenizer.get_vocab_size()} tokens, {characters / ids:.2f} characters per token")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
