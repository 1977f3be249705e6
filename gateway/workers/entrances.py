"""Which workers can speak through the present engine: each is let in once for each, and again when it was cut off."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...pipeline.shared.messages import Attach, Detach
from .process import WorkerProcess


class Entrances:
    """Synchronous. `way_in` is how the worker of a number speaks, given the last epoch of its; None while nobody can.

    `workers`: those that there are, by number.
    """

    def __init__(self, way_in: Callable[[int, int], Attach | None], workers: Mapping[int, WorkerProcess]) -> None:
        self._way_in, self._workers = way_in, workers
        self._epochs: dict[int, int] = {}
        """The last of each worker that is gone."""
        self.all_in = False
        """There was a moment when every worker could speak through the present engine."""

    def look(self) -> None:
        """Let in who waits for it: the engine is up, or it was not reached the last time."""
        for worker in self._workers.values():
            self.let_in(worker)

    def let_in(self, worker: WorkerProcess) -> None:
        """Once there is an engine and the worker listens, and once for each engine."""
        if not worker.listening or worker.let_in:
            return
        if (way_in := self._way_in(worker.owner, self._last_epoch(worker))) is not None:
            worker.let_in = True
            worker.send(way_in)

    def came_in(self) -> None:
        """A worker can speak. Those that died on the way are not waited for, but their successors are."""
        self.all_in |= all(worker.attached for worker in self._workers.values())

    def lost(self, reason: str) -> None:
        """The engine is gone, and everything that was lent of it."""
        self.all_in = False
        for worker in self._workers.values():
            worker.let_in = worker.attached = False
            worker.desk.engine_lost()
            worker.send(Detach(reason))

    def gone(self, worker: WorkerProcess) -> None:
        """The worker is no more; the next of its number must not use its epochs again."""
        self._epochs[worker.owner] = self._last_epoch(worker)

    def _last_epoch(self, worker: WorkerProcess) -> int:
        return worker.desk.last_epoch or self._epochs.get(worker.owner, 0)
