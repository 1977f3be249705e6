"""What a client keeps of an utterance for another gateway to go on with it (docs/protocol.md, "Another replica")."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

TEXT_CHARACTERS = 8000
"""Characters of text in one message when it is sent again."""
PARTS_CHARACTERS = 16_000
"""Characters of checkpoint parts in one message: all fit into the smallest limit that a gateway is run with."""

Message = dict[str, Any]


class SentUtterance:
    """The `start` message of an utterance, its text with flushes, and the parts of its checkpoint.

    The gateway bounds all of them: text by `limits.characters_per_utterance`, parts by what it sends.
    """

    def __init__(self, start: Mapping[str, Any]) -> None:
        self.parts: list[str] = []
        self.words = self.visemes = 0
        """Words and visemes received."""
        self._start = dict(start)
        self._pieces: list[tuple[str, str | None]] = []
        """Id of the message and text of each fragment; None for a flush."""
        self._ended = False

    def record(self, message: Mapping[str, Any]) -> None:
        """Keeps a message that is sent, if it decides how the utterance sounds."""
        match message["type"]:
            case "text":
                self._pieces.append((message["id"], message["text"]))
            case "flush":
                self._pieces.append((message["id"], None))
            case "end":
                self._ended = True

    def forget(self, message_id: str) -> None:
        """Drops a message that the gateway has refused."""
        self._pieces = [piece for piece in self._pieces if piece[0] != message_id]

    def messages(self, started: Mapping[str, Any] | None, received: int, *, last: bool) -> Iterator[Message]:
        """Yields what begins the utterance behind `received` audio messages, the `last` of all among them or not.

        `started`: voice, language and seed in force; None for an utterance that has not started anywhere.
        """
        utterance = self._start["utterance"]
        if started is None:
            yield self._start
        else:
            batches = list(_batches(self.parts, PARTS_CHARACTERS))
            yield {
                **self._start,
                **started,
                "type": "restore",
                "checkpoint": batches[0],
                "received": {"messages": received, "last": last, "words": self.words, "visemes": self.visemes},
                "characters": sum(len(text or "") for _, text in self._pieces),
            }
            for batch in batches[1:]:
                yield {"type": "checkpoint", "utterance": utterance, "parts": batch}
        yield from self._text(utterance)
        if self._ended:
            yield {"type": "end", "utterance": utterance, "id": "end-0"}

    def _text(self, utterance: str) -> Iterator[Message]:
        texts = [""]
        for _, text in self._pieces:
            if text is None:
                texts.append("")
            else:
                texts[-1] += text
        for number, between in enumerate(texts):
            if number:
                yield {"type": "flush", "utterance": utterance, "id": "flush-0"}
            for begin in range(0, len(between), TEXT_CHARACTERS):
                fragment = between[begin : begin + TEXT_CHARACTERS]
                yield {"type": "text", "utterance": utterance, "id": "text-0", "text": fragment}


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
