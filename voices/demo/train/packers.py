"""Processes that pack batches beside the training loop; forked before the device is touched."""

from __future__ import annotations

import multiprocessing
import os
import queue
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

import torch

from .packing import SENTENCES, Batch, Packer, TokenLines
from .store import Utterance


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

    def add(self, utterances: Sequence[Utterance]) -> None:
        parts = [astuple(part) for part in utterances]
        for inbox in self._inboxes:
            inbox.put(parts)

    def batch(self) -> Batch:
        """The next batch. Raises queue.Empty when none comes within two minutes."""
        return Batch(self._batches.get(timeout=120))

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
            packer.add([Utterance(*parts) for parts in inbox.get()])
        fields = packer.batch().fields
        while os.getppid() == parent:
            try:
                batches.put(fields, timeout=5)
                break
            except queue.Full:
                continue
