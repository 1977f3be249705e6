"""Packs documents into rows of fixed length, in processes beside the training loop.

A document has the layout of an utterance in use: the prompt with its speaker, then one text token per frame, then
padding while the speech continues, up to the end-of-speech code. It has one to ten sentences of one voice.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
from collections.abc import Iterable, Mapping, Sequence
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
    EQUAL_SHARES,
    IM_START,
    NEWLINE,
    SPEAKERS,
    TEXT_BOS,
    TEXT_EOS,
    TEXT_PAD,
)
from ..store import StoredUtterance

PROMPT_TEXT = (IM_START, ASSISTANT, NEWLINE, TEXT_PAD, TEXT_PAD, TEXT_PAD, TEXT_PAD, TEXT_BOS)
PROMPT = len(PROMPT_TEXT)

ABSENT = -1
"""In `history` and `entry`: no codec-side input. In `target`: no target."""
END = -2
"""In `target`: end of speech."""

SENTENCES = (0.36, 0.18, 0.12, 0.09, 0.06, 0.05, 0.04, 0.04, 0.03, 0.03)
"""Probability of a document of one sentence, two, ... Most positions are in documents of four sentences and more."""
TRAILING_SILENCE = (0.7, 0.15, 0.1, 0.05)
"""Probability that a document ends with no, one, two, ... additional frames of silence. So a talker that did not
end at the first opportunity learns to end at the next."""
_MIN_POSITIONS = 24
"""Fewer positions at the end of a row stay empty."""


def with_single_share(share: float) -> tuple[float, ...]:
    """`SENTENCES` with the given share of single sentences, and the other probabilities in proportion."""
    rest = (1 - share) / (1 - SENTENCES[0])
    return (share, *(part * rest for part in SENTENCES[1:]))


def prompt_entries(voice: str) -> tuple[int, ...]:
    """Codec side of the prompt: rows of the talker's codec table, or ABSENT."""
    speaker = SPEAKERS[voice]
    return (ABSENT, ABSENT, ABSENT, CODEC_NOTHINK, CODEC_THINK_BOS, CODEC_THINK_EOS, speaker, CODEC_PAD)


FIELDS = ("text", "history", "entry", "target", "position", "document")


@dataclass(frozen=True, slots=True, eq=False)
class PackedBatch:
    """Fields of a batch, each int32 [rows, T].

    text: token ids. history: the preceding frame, as an index into the store. entry: a row of the codec table. target:
    the frame to predict, as an index into the store, or END. position: within the document. document: number of the
    document; positions attend to the same document only.
    """

    fields: NDArray[np.int32]

    def __getattr__(self, name: str) -> NDArray[np.int32]:
        if name not in FIELDS:
            raise AttributeError(name)
        return self.fields[FIELDS.index(name)]


def empty_batch(rows: int, length: int) -> PackedBatch:
    """A batch of padding, in which every position is a separate document."""
    fields = np.zeros((len(FIELDS), rows, length), np.int32)
    batch = PackedBatch(fields)
    batch.text[:] = TEXT_PAD
    for name in ("history", "entry", "target"):
        getattr(batch, name)[:] = ABSENT
    batch.document[:] = -1 - np.arange(length)
    return batch


@dataclass(frozen=True, slots=True, eq=False)
class TokenLines:
    """Token ids of the lines of text: all ids concatenated, and the offset of each line."""

    ids: NDArray[np.int16]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, lines: Iterable[Sequence[int]]) -> TokenLines:
        """Concatenate the ids of the lines."""
        encoded = [np.array(line, np.int16) for line in lines]
        lengths = np.array([len(line) for line in encoded], np.int64)
        return cls(np.concatenate(encoded), np.concatenate([[0], np.cumsum(lengths)]))

    def line(self, index: int) -> NDArray[np.int16]:
        """The ids of one line."""
        return self.ids[self.starts[index] : self.starts[index + 1]]


def write_document(
    batch: PackedBatch,
    row: int,
    start: int,
    voice: str,
    tokens: NDArray[np.int16],
    utterances: Sequence[StoredUtterance],
    trailing_silence: int = 0,
) -> int:
    """Write one document into a row; returns the position after it. There must not be more tokens than frames.

    The last frame of the document, which is silence, is repeated `trailing_silence` times.
    """
    frames = np.concatenate([np.arange(part.start, part.start + part.frames) for part in utterances])
    frames = np.concatenate([frames, np.repeat(frames[-1:], trailing_silence)])
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
    """Draws utterances of one voice in random order, each once per round."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._all: list[StoredUtterance] = []
        self._left: list[int] = []

    def __len__(self) -> int:
        return len(self._all)

    def add(self, utterances: Sequence[StoredUtterance]) -> None:
        """Add utterances to the rest of the present round."""
        fresh = range(len(self._all), len(self._all) + len(utterances))
        self._all += utterances
        left = np.array([*self._left, *fresh], np.int64)
        self._left = self._rng.permutation(left).tolist()

    def draw(self, max_frames: int) -> StoredUtterance | None:
        """The next utterance of at most `max_frames` frames; None if a few attempts found none."""
        for _ in range(6):
            if not self._left:
                self._left = self._rng.permutation(len(self._all)).tolist()
            utterance = self._all[self._left[-1]]
            if utterance.frames <= max_frames:
                self._left.pop()
                return utterance
            other = int(self._rng.integers(len(self._left)))
            self._left[-1], self._left[other] = self._left[other], self._left[-1]
        return None


class Packer:
    """Fills batches with documents.

    `variants`: the tokens of the text, first regular, then with BPE dropout. `sentences`, `trailing_silence`:
    probabilities as `SENTENCES` and `TRAILING_SILENCE`. `shares`: of the voices in documents.
    """

    def __init__(
        self,
        variants: Sequence[TokenLines],
        rows: int,
        length: int,
        seed: int,
        sentences: Sequence[float] = SENTENCES,
        trailing_silence: Sequence[float] = TRAILING_SILENCE,
        shares: Mapping[str, float] = EQUAL_SHARES,
    ) -> None:
        self._rng = np.random.default_rng(seed)
        self._variants, self._rows, self._length = variants, rows, length
        self._sentence_counts, self._trailing_silence = sentences, trailing_silence
        self._shares = shares
        self._pools = {voice: ShuffledPool(self._rng) for voice in shares}

    def add(self, utterances: Sequence[StoredUtterance]) -> None:
        """Add utterances to be packed."""
        for voice, pool in self._pools.items():
            pool.add([part for part in utterances if part.voice == voice])

    @property
    def ready(self) -> bool:
        """Whether there are utterances."""
        return any(len(pool) for pool in self._pools.values())

    def batch(self) -> PackedBatch:
        """Pack a batch; voices that have utterances are drawn by their shares."""
        batch = empty_batch(self._rows, self._length)
        voices = [voice for voice, pool in self._pools.items() if len(pool)]
        shares = np.array([self._shares[voice] for voice in voices])
        for row in range(self._rows):
            at, misses = 0, 0
            while at < self._length - PROMPT - _MIN_POSITIONS and misses < 3:
                voice = voices[self._rng.choice(len(voices), p=shares / shares.sum())]
                silence = int(self._rng.choice(len(self._trailing_silence), p=self._trailing_silence))
                utterances = self._sentences(self._pools[voice], self._length - at - PROMPT - 1 - silence)
                if not utterances:
                    misses += 1
                    continue
                at = write_document(batch, row, at, voice, self._tokens(utterances), utterances, silence)
        return batch

    def _sentences(self, pool: ShuffledPool, max_frames: int) -> list[StoredUtterance]:
        wanted = self._rng.choice(len(self._sentence_counts), p=self._sentence_counts) + 1
        utterances: list[StoredUtterance] = []
        while len(utterances) < wanted and max_frames > _MIN_POSITIONS // 2:
            utterance = pool.draw(max_frames)
            if utterance is None:
                break
            utterances.append(utterance)
            max_frames -= utterance.frames
        return utterances

    def _tokens(self, utterances: Sequence[StoredUtterance]) -> NDArray[np.int16]:
        # Half of the documents have regular tokens, which the talker reads in use.
        other = len(self._variants) > 1 and self._rng.random() < 0.5
        variant = self._variants[int(self._rng.integers(1, len(self._variants))) if other else 0]
        tokens = np.concatenate([variant.line(part.line) for part in utterances])
        return tokens[: sum(part.frames for part in utterances)]


class PackingProcesses:
    """Processes that pack batches, each from all utterances in a different order.

    Must be created before CUDA is initialised, because they are forked.
    """

    def __init__(
        self,
        variants: Sequence[TokenLines],
        rows: int,
        length: int,
        processes: int,
        seed: int,
        sentences: Sequence[float] = SENTENCES,
        shares: Mapping[str, float] = EQUAL_SHARES,
    ) -> None:
        context = multiprocessing.get_context("fork")
        self._batches: Any = context.Queue(4 * processes)
        self._inboxes: list[Any] = [context.Queue() for _ in range(processes)]
        self._processes = [
            context.Process(
                target=_pack,
                args=(Packer(variants, rows, length, seed + index, sentences, shares=shares), inbox, self._batches),
                daemon=True,
            )
            for index, inbox in enumerate(self._inboxes)
        ]
        for process in self._processes:
            process.start()
        for queue_of_parts in self._inboxes:
            queue_of_parts.cancel_join_thread()

    def add(self, utterances: Sequence[StoredUtterance]) -> None:
        """Add utterances to be packed."""
        parts = [astuple(part) for part in utterances]
        for inbox in self._inboxes:
            inbox.put(parts)

    def batch(self) -> PackedBatch:
        """Return the next batch. Raises queue.Empty after two minutes."""
        return PackedBatch(self._batches.get(timeout=120))

    @property
    def waiting(self) -> int:
        """Batches in the queue."""
        return int(self._batches.qsize())

    def close(self) -> None:
        """Kill the processes."""
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
