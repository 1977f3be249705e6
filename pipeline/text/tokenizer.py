"""A checkpoint's byte-level BPE tokenizer, applied to one piece of the pre-tokenizer at a time.

`docs/qwen3_tts.md`, section 3, describes the tokenizer; `incremental_tokenizer.py` needs its pieces and their offsets.
"""

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
    # The reference package uses this pattern instead for some local folders; needed for comparisons with it.
    "mistral": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}
"""Regular expressions that split text into the pieces that BPE encodes separately."""

BLANK = "\u0120"
"""The symbol that represents the byte 0x20."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of text that BPE encodes separately: its byte symbols, and its span in the text."""

    symbols: str
    start: int
    end: int


class TextTokenizer:
    """A checkpoint's tokenizer for untrusted text; `tokenizer` is the complete one, with its control tokens.

    The methods never return a control token: they use the normaliser, the pre-tokenizer and the BPE model, but do not
    search the text for added tokens.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Raises ValueError for a tokenizer that has no pre-tokenizer or is not a BPE."""
        if tokenizer.pre_tokenizer is None or not isinstance(tokenizer.model, BPE):
            raise ValueError("the tokenizer must be a byte-level BPE with a pre-tokenizer")
        self.tokenizer = tokenizer
        self.control_tokens = tuple(sorted(token.content for token in tokenizer.get_added_tokens_decoder().values()))
        self._model = tokenizer.model
        self._normalizer = tokenizer.normalizer
        self._keeps_ascii = isinstance(tokenizer.normalizer, NFC)
        self._first = tokenizer.pre_tokenizer
        self._later, self.adds_prefix_space = _without_prefix_space(tokenizer.pre_tokenizer)
        # Words and characters repeat within a text.
        self._cached_ids = lru_cache(maxsize=8192)(self._ids)
        self._cached_normal = lru_cache(maxsize=8192)(self._normal)

    @property
    def vocabulary(self) -> int:
        """One more than the largest id that text can yield."""
        return 1 + max(self.tokenizer.get_vocab(with_added_tokens=False).values())

    def pieces(self, text: str, *, at_start: bool) -> list[Piece]:
        """Split `text` into pieces; `at_start` if it is the beginning of a text, not the rest of one."""
        cut = PreTokenizedString(text)
        if self._normalizer is not None and not (self._keeps_ascii and text.isascii()):
            cut.normalize(self._normalizer.normalize)
        (self._first if at_start else self._later).pre_tokenize(cut)
        splits = cut.get_splits(offset_referential="original", offset_type="char")
        return [Piece(symbols, start, end) for symbols, (start, end), _ in splits]

    def ids(self, symbols: str) -> tuple[tuple[int, int], ...]:
        """The tokens of one piece as (id, number of symbols up to its end)."""
        return self._cached_ids(symbols)

    def encode_plain(self, text: str) -> list[int]:
        """All tokens of a complete text; control tokens written in it count as ordinary characters."""
        return [token for piece in self.pieces(text, at_start=True) for token, _ in self.ids(piece.symbols)]

    def normal(self, char: str) -> str:
        """The normalised form of one character on its own."""
        return self._cached_normal(char)

    def can_join(self, left: str, right: str) -> bool:
        """Whether any token contains (parts of) the character `left` directly before (parts of) `right`.

        If not, no merge crosses the border, so the tokens to its left do not depend on the text to its right.
        """
        if self._joints is None:
            return True
        a, b = left.encode(), right.encode()
        return any((a[i:], b[:k]) in self._joints for i in range(len(a)) for k in range(1, len(b) + 1))

    def _ids(self, symbols: str) -> tuple[tuple[int, int], ...]:
        encoded = symbols.encode()  # the model's offsets count bytes of the symbols
        return tuple(
            (token.id, len(encoded[: token.offsets[1]].decode(errors="ignore")))
            for token in self._model.tokenize(symbols)
        )

    def _normal(self, char: str) -> str:
        return char if self._normalizer is None else str(self._normalizer.normalize_str(char))

    @cached_property
    def _joints(self) -> frozenset[tuple[bytes, bytes]] | None:
        """All pairs of adjacent characters, or parts of characters, within the tokens that are not ASCII.

        None if the vocabulary lacks some bytes: those are dropped, which makes their neighbours adjacent.
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
    """Load `tokenizer.json`, or `vocab.json` and `merges.txt` with the added tokens of `tokenizer_config.json`.

    `pattern`: the piece pattern; None for that of `tokenizer.json`, or "qwen2" without that file. Raises
    FileNotFoundError, and ValueError for files that do not match each other.
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
    """Build Qwen2's byte-level BPE: NFC, pieces by `pattern`, bytes, merges, then the added tokens in order of id.

    Raises ValueError if an added token would get another id.
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
            raise ValueError(f"the added token {token.content!r} must have the id {id_}")
    return tokenizer


def _pre_tokenizer(pattern: Pattern) -> Any:
    split = Split(Regex(PATTERNS[pattern]), behavior="isolated")
    return Sequence([split, ByteLevel(add_prefix_space=False, use_regex=False)])


def _without_prefix_space(pre_tokenizer: Any) -> tuple[Any, bool]:
    """The pre-tokenizer for the rest of a text, and whether the original one adds a blank at the beginning."""
    state = json.loads(pre_tokenizer.__getstate__())
    added = False
    for part in (state, *state.get("pretokenizers", ())):
        added |= bool(part.get("add_prefix_space"))
        if "add_prefix_space" in part:
            part["add_prefix_space"] = False
    empty = {"version": "1.0", "pre_tokenizer": state, "model": {"type": "BPE", "vocab": {}, "merges": []}}
    return Tokenizer.from_str(json.dumps(empty)).pre_tokenizer, added


def _byte_symbols() -> dict[int, str]:
    """The printable character that represents each byte (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    symbols = {byte: chr(byte) for byte in printable}
    hidden = (byte for byte in range(256) if byte not in symbols)
    symbols.update({byte: chr(0x100 + n) for n, byte in enumerate(hidden)})
    return symbols
