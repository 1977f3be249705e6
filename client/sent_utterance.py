"""What a client keeps of an utterance for another gateway to go on with it (docs/protocol.md, "Another replica")."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .events import Retracted

TEXT_CHARACTERS = 8000
"""Characters of text in one message when it is sent again."""
PARTS_CHARACTERS = 16_000
"""Characters of checkpoint parts in one message: all fit into the smallest limit that a gateway is run with."""

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A message about the text: `text` of one with text, otherwise None; `characters` of a retraction."""

    kind: str
    id: str
    text: str | None = None
    characters: int = 0


class SentUtterance:
    """The `start` message of an utterance, its text with flushes, and the parts of its checkpoint.

    The gateway bounds all of them: text by `limits.characters_per_utterance`, parts by what it sends.
    """

    def __init__(self, start: Mapping[str, Any]) -> None:
        self.parts: list[str] = []
        self.words: list[tuple[int, int]] = []
        """Offset of each word received that is not void, and the ms at which it ends."""
        self.visemes: list[int] = []
        """Start of each mouth shape received that is not void, in ms."""
        self._start = dict(start)
        self._pieces: list[_Piece] = []
        """Text, flushes, ends, and retractions without an answer."""

    def record(self, message: Mapping[str, Any]) -> None:
        """Keeps a message that is sent, if it decides how the utterance sounds."""
        if (kind := message["type"]) in ("text", "flush", "end", "retract"):
            piece = _Piece(kind, message["id"], message.get("text"), message.get("characters", 0))
            self._pieces.append(piece)

    def forget(self, message_id: str) -> None:
        """Drops a message that the gateway has refused."""
        self._pieces = [piece for piece in self._pieces if piece.id != message_id]

    def retracted(self, answer: Retracted) -> None:
        """The first retraction without an answer was answered, with the parts that take the place of those so far."""
        self.parts = list(answer.checkpoint)
        cut_ms = math.inf if answer.audio_ms is None else answer.audio_ms
        self.words = [(start, int(min(end_ms, cut_ms))) for start, end_ms in self.words if start < answer.void_from]
        if answer.audio_ms is not None:
            self.visemes = [start_ms for start_ms in self.visemes if start_ms < answer.audio_ms]
        number = next((n for n, piece in enumerate(self._pieces) if piece.kind == "retract"), None)
        if number is None:
            return
        before, behind = self._pieces[:number], self._pieces[number + 1 :]
        self._pieces = [*_kept(before, answer.characters, answer.flush_at or 0), *behind]

    def messages(self, started: Mapping[str, Any] | None, received: int, *, last: bool) -> Iterator[Message]:
        """Yields what begins the utterance behind `received` audio messages, the `last` of all among them or not.

        `started`: voice, language and seed in force; None for an utterance that has not started anywhere.
        """
        utterance = self._start["utterance"]
        if started is None:
            yield self._start
        elif not self.parts:  # nothing of it was received, so that it can begin again
            yield {**self._start, **started}
        else:
            words_end_ms = self.words[-1][1] if self.words else 0
            words = {"words": len(self.words), "words_end_ms": words_end_ms}
            progress = {"messages": received, "last": last, **words, "visemes": len(self.visemes)}
            batches = list(_batches(self.parts, PARTS_CHARACTERS))
            yield {
                **self._start,
                **started,
                "type": "restore",
                "checkpoint": batches[0],
                "received": progress,
                "characters": sum(len(piece.text or "") for piece in self._pieces),
            }
            for batch in batches[1:]:
                yield {"type": "checkpoint", "utterance": utterance, "parts": batch}
        yield from self._text(utterance)

    def _text(self, utterance: str) -> Iterator[Message]:
        waiting, ended = "", False
        for piece in self._pieces:
            if piece.text is not None:
                waiting += piece.text
                continue
            yield from _fragments(utterance, waiting)
            waiting = ""
            if piece.kind == "end":
                ended = True
            elif piece.kind == "flush":
                yield {"type": "flush", "utterance": utterance, "id": "flush-0"}
            elif piece.kind == "retract":
                if ended:  # what was received may include what is spoken at the end of the text
                    yield {"type": "end", "utterance": utterance, "id": "end-0"}
                    ended = False
                retract = {"type": "retract", "utterance": utterance, "id": piece.id}
                yield retract | {"characters": piece.characters}
        yield from _fragments(utterance, waiting)
        if ended:
            yield {"type": "end", "utterance": utterance, "id": "end-0"}


def _fragments(utterance: str, text: str) -> Iterator[Message]:
    for begin in range(0, len(text), TEXT_CHARACTERS):
        fragment = text[begin : begin + TEXT_CHARACTERS]
        yield {"type": "text", "utterance": utterance, "id": "text-0", "text": fragment}


def _kept(pieces: list[_Piece], characters: int, flush_at: int) -> Iterator[_Piece]:
    """Yields the pieces of the first `characters` characters, with a flush behind the first `flush_at` of them."""
    at = 0
    for piece in pieces:
        if piece.kind == "flush" and at <= characters:
            yield piece
        text = (piece.text or "")[: max(0, characters - at)]
        before, behind = text[: max(0, flush_at - at)], text[max(0, flush_at - at) :]
        if before:
            yield _Piece("text", piece.id, before)
        if before and at + len(before) == flush_at:
            yield _Piece("flush", piece.id)
        if behind:
            yield _Piece("text", piece.id, behind)
        at += len(piece.text or "")


def _batches(parts: list[str], characters: int) -> Iterator[list[str]]:
    """Divides parts into lists of about so many characters; at least one list."""
    batch: list[str] = []
    size = 0
    for part in parts:
        if batch and size + len(part) > characters:
            yield batch
            batch, size = [], 0
        batch.append(part)
        size += len(part)
    yield batch
