"""The byte-level BPE of a checkpoint, seen piece by piece."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

from tokenizers import AddedToken, PreTokenizedString, Regex, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.normalizers import NFC
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

Pattern = Literal["qwen2", "mistral"]

PATTERNS: dict[Pattern, str] = {
    "qwen2": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    # What the reference package silently puts in its place for some local folders; to compare with it.
    "mistral": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}
"""How text is cut into the pieces that BPE works on."""


BLANK = "\u0120"
"""The symbol of the byte 0x20."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of text that BPE encodes by itself: its byte symbols, and where it lies in the text given in."""

    symbols: str
    start: int
    end: int


class TextTokenizer:
    """A checkpoint's tokenizer; `tokenizer` is the whole one, with its control tokens.

    The methods never yield a control token, whatever the text: they use the normaliser, the pre-tokeniser and
    the BPE model, and leave out the search for added tokens.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Raises ValueError for a tokenizer without a pre-tokeniser or not of type BPE."""
        if tokenizer.pre_tokenizer is None or not isinstance(tokenizer.model, BPE):
            raise ValueError("the tokenizer is not a byte-level BPE with a pre-tokeniser")
        self.tokenizer = tokenizer
        self.control_tokens = tuple(sorted(token.content for token in tokenizer.get_added_tokens_decoder().values()))
        self._model = tokenizer.model
        self._first = tokenizer.pre_tokenizer
        self._later, self.adds_prefix_space = _without_prefix_space(tokenizer.pre_tokenizer)
        # Speech repeats its words and characters.
        self._cached_ids = lru_cache(maxsize=8192)(self._ids)
        self._cached_normal = lru_cache(maxsize=8192)(self._normal)

    @property
    def vocabulary(self) -> int:
        """One more than the largest id that a text can have."""
        return 1 + max(self.tokenizer.get_vocab(with_added_tokens=False).values())

    def pieces(self, text: str, *, at_start: bool) -> list[Piece]:
        """Cut `text` into pieces; `at_start` tells whether it begins the text or goes on after an earlier
        piece.
        """
        cut = PreTokenizedString(text)
        if (normalizer := self.tokenizer.normalizer) is not None:
            cut.normalize(normalizer.normalize)
        (self._first if at_start else self._later).pre_tokenize(cut)
        splits = cut.get_splits(offset_referential="original", offset_type="char")
        return [Piece(symbols, start, end) for symbols, (start, end), _ in splits]

    def ids(self, symbols: str) -> tuple[tuple[int, int], ...]:
        """The tokens of one piece as (id, symbols covered so far)."""
        return self._cached_ids(symbols)

    def encode_plain(self, text: str) -> list[int]:
        """All tokens of a complete text; control tokens written in it are read as ordinary characters."""
        return [token for piece in self.pieces(text, at_start=True) for token, _ in self.ids(piece.symbols)]

    def normal(self, char: str) -> str:
        """One character as the normaliser leaves it by itself."""
        return self._cached_normal(char)

    def can_join(self, left: str, right: str) -> bool:
        """Whether any token could hold (parts of) `left` directly followed by (parts of) `right`, two
        characters.

        Where none can, no merge crosses, so BPE left of that place does not depend on what is right of it.
        """
        if self._joints is None:
            return True
        a, b = left.encode(), right.encode()
        return any((a[i:], b[:k]) in self._joints for i in range(len(a)) for k in range(1, len(b) + 1))

    def _ids(self, symbols: str) -> tuple[tuple[int, int], ...]:
        encoded = symbols.encode()  # the model counts in bytes of the symbols
        return tuple(
            (token.id, len(encoded[: token.offsets[1]].decode(errors="ignore")))
            for token in self._model.tokenize(symbols)
        )

    def _normal(self, char: str) -> str:
        normalizer = self.tokenizer.normalizer
        return char if normalizer is None else str(normalizer.normalize_str(char))

    @cached_property
    def _joints(self) -> frozenset[tuple[bytes, bytes]] | None:
        """Every place within a token of more than ASCII where a character, or a part of one, meets the next.

        None when the vocabulary lacks some bytes: those vanish, and their neighbours meet.
        """
        vocabulary = self.tokenizer.get_vocab(with_added_tokens=False)
        byte_of = {symbol: byte for byte, symbol in _byte_symbols().items()}
        if any(symbol not in vocabulary for symbol in byte_of):
            return None
        joints = set()
        for symbols in vocabulary:
            if len(symbols) < 2 or any(symbol not in byte_of for symbol in symbols):
                continue
            token = bytes(byte_of[symbol] for symbol in symbols)
            if max(token) < 0x80:
                continue
            starts = [i for i, byte in enumerate(token) if byte & 0xC0 != 0x80]
            for n, i in enumerate(starts):
                if i == 0:
                    continue
                left = token[starts[n - 1] if n else 0 : i]
                right = token[i : starts[n + 1] if n + 1 < len(starts) else len(token)]
                joints.add((left, right))
        return frozenset(joints)


def load_tokenizer(folder: Path, *, pattern: Pattern | None = None) -> TextTokenizer:
    """Load `tokenizer.json`, or `vocab.json` and `merges.txt` with the added tokens of
    `tokenizer_config.json`.

    `pattern` names the piece pattern; None takes that of `tokenizer.json`, or "qwen2" without one. Raises
    FileNotFoundError, and ValueError for files that do not fit together.
    """
    if (path := folder / "tokenizer.json").exists():
        tokenizer = Tokenizer.from_file(str(path))
        if pattern is not None:
            tokenizer.pre_tokenizer = _pre_tokenizer(pattern)
        return TextTokenizer(tokenizer)
    vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    lines = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")
    merges = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    added: dict[str, Any] = {}
    if (config := folder / "tokenizer_config.json").exists():
        added = json.loads(config.read_text(encoding="utf-8")).get("added_tokens_decoder", {})
    return TextTokenizer(build_tokenizer(vocabulary, merges, added, pattern or "qwen2"))


def build_tokenizer(
    vocabulary: dict[str, int], merges: list[Any], added: dict[str, Any], pattern: Pattern = "qwen2"
) -> Tokenizer:
    """Put Qwen2's byte-level BPE together: NFC, pieces by `pattern`, bytes, merges, then the added tokens by
    id.
    """
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=merges))
    tokenizer.normalizer = NFC()
    tokenizer.pre_tokenizer = _pre_tokenizer(pattern)
    tokenizer.decoder = ByteLevelDecoder()
    for id_, entry in sorted(added.items(), key=lambda item: int(item[0])):
        flags = {name: bool(entry.get(name, False)) for name in ("lstrip", "rstrip", "normalized", "single_word")}
        special = bool(entry.get("special", False))
        token = AddedToken(entry["content"], special=special, **flags)
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)([token])
        if tokenizer.token_to_id(token.content) != int(id_):
            raise ValueError(f"added token {token.content!r} does not get its id {id_}")
    return tokenizer


def _pre_tokenizer(pattern: Pattern) -> Any:
    split = Split(Regex(PATTERNS[pattern]), behavior="isolated")
    return Sequence([split, ByteLevel(add_prefix_space=False, use_regex=False)])


def _without_prefix_space(pre_tokenizer: Any) -> tuple[Any, bool]:
    """The pre-tokeniser for text that goes on, and whether it differs."""
    state = json.loads(pre_tokenizer.__getstate__())
    added = False
    for part in (state, *state.get("pretokenizers", ())):
        added |= bool(part.get("add_prefix_space"))
        if "add_prefix_space" in part:
            part["add_prefix_space"] = False
    empty = {"version": "1.0", "pre_tokenizer": state, "model": {"type": "BPE", "vocab": {}, "merges": []}}
    return Tokenizer.from_str(json.dumps(empty)).pre_tokenizer, added


def _byte_symbols() -> dict[int, str]:
    """The printable character that stands for each byte (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    symbols = {byte: chr(byte) for byte in printable}
    hidden = (byte for byte in range(256) if byte not in symbols)
    symbols.update({byte: chr(0x100 + n) for n, byte in enumerate(hidden)})
    return symbols
