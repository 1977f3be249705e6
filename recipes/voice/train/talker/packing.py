"""Documents of one to ten sentences of one voice, laid side by side into rows of a fixed length.

A document is what the talker meets when it speaks: the prompt with its speaker, then one text token a frame, then
padding while it goes on speaking, until it says that it has ended.
"""
# TODO-DOC Processes that pack batches beside the training loop; forked before the device is touched.

from __future__ import annotations

import multiprocessing
import os
import queue
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..sizes import (
    ASSISTANT,
    CODEC_BOS,
    CODEC_NOTHINK,
    CODEC_PAD,
    CODEC_THINK_BOS,
    CODEC_THINK_EOS,
    IM_START,
    NEWLINE,
    SPEAKERS,
    TEXT_BOS,
    TEXT_EOS,
    TEXT_PAD,
)
from ..store import StoredUtterance

PROMPT_TEXT = (IM_START, ASSISTANT, NEWLINE, TEXT_PAD, TEXT_PAD, TEXT_PAD, TEXT_PAD, TEXT_BOS)
_SPEAKER_AT = 6
PROMPT = len(PROMPT_TEXT)

NOTHING = -1
"""In `history` and `entry`: nothing on the codec side. In `target`: nothing to learn here."""
END = -2
"""In `target`: end of speech."""

SENTENCES = (0.36, 0.18, 0.12, 0.09, 0.06, 0.05, 0.04, 0.04, 0.03, 0.03)
"""How often a document has one sentence, two, ... By positions, most are in documents of four and more."""
STILL = (0.7, 0.15, 0.1, 0.05)
"""How often a document ends with none, one, two, ... frames of silence more than its last sentence has: a talker that
missed the place to end finds another one right behind it."""
_SHORTEST = 24
"""Fewer positions than this at the end of a row stay empty."""


def with_single(share: float) -> tuple[float, ...]:
    """`SENTENCES` with that share of documents of one sentence, the others among themselves as they are."""
    rest = (1 - share) / (1 - SENTENCES[0])
    return (share, *(part * rest for part in SENTENCES[1:]))


def prompt_entries(voice: str) -> tuple[int, ...]:
    """The codec side of the prompt: rows of the talker's codec table, or NOTHING."""
    speaker = SPEAKERS[voice]
    return (NOTHING, NOTHING, NOTHING, CODEC_NOTHINK, CODEC_THINK_BOS, CODEC_THINK_EOS, speaker, CODEC_PAD)


FIELDS = ("text", "history", "entry", "target", "position", "document")


@dataclass(frozen=True, slots=True, eq=False)
class PackedBatch:
    """Everything int32 [rows, T].

    text: token ids. history: the frame heard at this position (the one before), an index into the store. entry: a
    row of the codec table. target: the frame to be said, an index into the store, or END. position: within the
    document. document: positions with one number see one another.
    """

    fields: NDArray[np.int32]

    def __getattr__(self, name: str) -> NDArray[np.int32]:
        if name not in FIELDS:
            raise AttributeError(name)
        return self.fields[FIELDS.index(name)]


def empty_batch(rows: int, length: int) -> PackedBatch:
    """Padding alone, every position a document of its own."""
    fields = np.zeros((len(FIELDS), rows, length), np.int32)
    batch = PackedBatch(fields)
    batch.text[:] = TEXT_PAD
    for name in ("history", "entry", "target"):
        getattr(batch, name)[:] = NOTHING
    batch.document[:] = -1 - np.arange(length)
    return batch


@dataclass(frozen=True, slots=True, eq=False)
class TokenLines:
    """The text's lines as token ids: all lines on end, and where each begins."""

    ids: NDArray[np.int16]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, lines: Iterable[Sequence[int]]) -> TokenLines:
        encoded = [np.array(line, np.int16) for line in lines]
        lengths = np.array([len(line) for line in encoded], np.int64)
        return cls(np.concatenate(encoded), np.concatenate([[0], np.cumsum(lengths)]))

    def line(self, index: int) -> NDArray[np.int16]:
        return self.ids[self.starts[index] : self.starts[index + 1]]


def place(
    batch: PackedBatch,
    row: int,
    start: int,
    voice: str,
    tokens: NDArray[np.int16],
    spoken: Sequence[StoredUtterance],
    still: int = 0,
) -> int:
    """Write one document into a row; the position behind it. `tokens` must not outnumber the frames.

    Where another sentence follows, the last frame, which is silence, is left out: flite itself pauses for a tenth of a
    second there. still: so many times is the very last frame said again.
    """
    frames = np.concatenate([np.arange(part.start, part.start + part.frames - 1) for part in spoken])
    frames = np.append(frames, spoken[-1].start + spoken[-1].frames - 1)
    frames = np.concatenate([frames, np.repeat(frames[-1:], still)])
    speech, end = start + PROMPT, start + PROMPT + len(frames) + 1
    where = (row, slice(start, end))
    text = np.full(end - start, TEXT_PAD)
    text[:PROMPT] = PROMPT_TEXT
    text[PROMPT : PROMPT + len(tokens)] = tokens
    text[PROMPT + len(tokens)] = TEXT_EOS
    batch.text[where] = text
    batch.entry[row, start:speech] = prompt_entries(voice)
    batch.entry[row, speech] = CODEC_BOS
    batch.history[row, speech + 1 : end] = frames
    batch.target[row, speech : end - 1] = frames
    batch.target[row, end - 1] = END
    batch.position[where] = np.arange(end - start)
    batch.document[where] = start
    return end


class ShuffledPool:
    """Utterances of one voice in random order; each comes once before any comes again."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._all: list[StoredUtterance] = []
        self._left: list[int] = []

    def __len__(self) -> int:
        return len(self._all)

    def add(self, utterances: Sequence[StoredUtterance]) -> None:
        """New ones come among those that are still to come in this round."""
        fresh = range(len(self._all), len(self._all) + len(utterances))
        self._all += utterances
        left = np.array([*self._left, *fresh], np.int64)
        self._left = self._rng.permutation(left).tolist()

    def draw(self, longest: int) -> StoredUtterance | None:
        """The next one of at most that many frames; None when a few tries found none."""
        for _ in range(6):
            if not self._left:
                self._left = self._rng.permutation(len(self._all)).tolist()
            utterance = self._all[self._left[-1]]
            if utterance.frames <= longest:
                self._left.pop()
                return utterance
            other = int(self._rng.integers(len(self._left)))
            self._left[-1], self._left[other] = self._left[other], self._left[-1]
        return None


class Packer:
    """Fills batches; `variants` are the text's tokens, plain first, then with merges left out at random."""

    def __init__(
        self,
        variants: Sequence[TokenLines],
        rows: int,
        length: int,
        seed: int,
        sentences: Sequence[float] = SENTENCES,
        still: Sequence[float] = STILL,
    ) -> None:
        self._rng = np.random.default_rng(seed)
        self._variants, self._rows, self._length = variants, rows, length
        self._counts, self._stills = sentences, still
        self._decks = {voice: ShuffledPool(self._rng) for voice in SPEAKERS}

    def add(self, utterances: Sequence[StoredUtterance]) -> None:
        for voice, deck in self._decks.items():
            deck.add([part for part in utterances if part.voice == voice])

    @property
    def ready(self) -> bool:
        return any(len(deck) for deck in self._decks.values())

    def batch(self) -> PackedBatch:
        batch = empty_batch(self._rows, self._length)
        voices = [voice for voice, deck in self._decks.items() if len(deck)]
        sizes = np.array([len(self._decks[voice]) for voice in voices], float)
        for row in range(self._rows):
            at, misses = 0, 0
            while at < self._length - PROMPT - _SHORTEST and misses < 3:
                voice = voices[self._rng.choice(len(voices), p=sizes / sizes.sum())]
                still = int(self._rng.choice(len(self._stills), p=self._stills))
                spoken = self._sentences(self._decks[voice], self._length - at - PROMPT - 1 - still)
                if not spoken:
                    misses += 1
                    continue
                at = place(batch, row, at, voice, self._tokens(spoken), spoken, still)
        return batch

    def _sentences(self, deck: ShuffledPool, room: int) -> list[StoredUtterance]:
        wanted = self._rng.choice(len(self._counts), p=self._counts) + 1
        spoken: list[StoredUtterance] = []
        while len(spoken) < wanted and room > _SHORTEST // 2:
            utterance = deck.draw(room)
            if utterance is None:
                break
            spoken.append(utterance)
            room -= utterance.frames
        return spoken

    def _tokens(self, spoken: Sequence[StoredUtterance]) -> NDArray[np.int16]:
        # Half of the documents in the tokens the talker will meet, the rest in other pieces of the same words.
        other = len(self._variants) > 1 and self._rng.random() < 0.5
        variant = self._variants[int(self._rng.integers(1, len(self._variants))) if other else 0]
        tokens = np.concatenate([variant.line(part.line) for part in spoken])
        return tokens[: sum(part.frames - 1 for part in spoken)]


class PackingProcesses:
    """Each process deals the whole store in an order of its own."""

    def __init__(
        self,
        variants: Sequence[TokenLines],
        rows: int,
        length: int,
        processes: int,
        seed: int,
        sentences: Sequence[float] = SENTENCES,
    ) -> None:
        context = multiprocessing.get_context("fork")
        self._batches: Any = context.Queue(4 * processes)
        self._inboxes: list[Any] = [context.Queue() for _ in range(processes)]
        self._processes = [
            context.Process(
                target=_pack,
                args=(Packer(variants, rows, length, seed + index, sentences), inbox, self._batches),
                daemon=True,
            )
            for index, inbox in enumerate(self._inboxes)
        ]
        for process in self._processes:
            process.start()
        for queue_of_parts in self._inboxes:
            queue_of_parts.cancel_join_thread()

    def add(self, utterances: Sequence[StoredUtterance]) -> None:
        parts = [astuple(part) for part in utterances]
        for inbox in self._inboxes:
            inbox.put(parts)

    def batch(self) -> PackedBatch:
        """The next batch. Raises queue.Empty when none comes within two minutes."""
        return PackedBatch(self._batches.get(timeout=120))

    @property
    def waiting(self) -> int:
        return int(self._batches.qsize())

    def close(self) -> None:
        for process in self._processes:
            process.kill()


def _pack(packer: Packer, inbox: Any, batches: Any) -> None:
    torch.set_num_threads(1)
    os.nice(5)
    parent = os.getppid()
    while os.getppid() == parent:
        while not packer.ready or not inbox.empty():
            packer.add([StoredUtterance(*parts) for parts in inbox.get()])
        fields = packer.batch().fields
        while os.getppid() == parent:
            try:
                batches.put(fields, timeout=5)
                break
            except queue.Full:
                continue
