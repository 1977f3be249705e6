"""What callers use, counted over all processes of a gateway: in memory that they share, under a lock of the kernel's.

A process that dies in the middle of it leaves the lock free, and its counts where whoever notices can strike them out.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import mmap
import os
import weakref
from collections.abc import Iterator

import numpy as np

PROCESSES = 64
_ROWS = 4096
_WINDOW = 64
"""Rows among which a name's may lie."""
_IDLE_S = 120.0
"""A row that nothing happened in for so long is as good as new: a bucket that is not overdrawn is full by then."""
_ROW = np.dtype(
    [
        ("name", np.uint64),
        ("tokens", np.float64),
        ("filled_s", np.float64),
        ("used_s", np.float64),
        ("sockets", np.int32, PROCESSES),
    ]
)


class Ledger:
    """Shared by the processes that have `fd` open; `process` is this one's number, below PROCESSES.

    Every call takes microseconds. Times are of the machine's monotonic clock, as every event loop's is.
    """

    def __init__(self, fd: int, process: int) -> None:
        self.fd = fd
        self._process = process
        self._rows = np.frombuffer(mmap.mmap(fd, (_ROWS + 1) * _ROW.itemsize), _ROW)
        self._all = self._rows["sockets"][_ROWS]
        """Of the last row, that stands for everybody."""
        weakref.finalize(self, os.close, fd)

    @classmethod
    def create(cls) -> Ledger:
        """An empty one, as the process of number 0; the memory has no name in any file system."""
        fd = os.memfd_create("voxgate-ledger", 0)
        os.ftruncate(fd, (_ROWS + 1) * _ROW.itemsize)
        return cls(fd, 0)

    @classmethod
    def attach(cls, path: str, process: int) -> Ledger:
        """The one at `path` in another process. Raises OSError when that is gone."""
        return cls(os.open(path, os.O_RDWR), process)

    @property
    def path(self) -> str:
        """By which other processes of this machine can `attach` it."""
        return f"/proc/{os.getpid()}/fd/{self.fd}"

    @property
    def open_sockets(self) -> int:
        """Of all processes."""
        return int(self._all.sum())

    def take_socket(self, limit: int) -> bool:
        """Have one more here, unless there are `limit` in all processes."""
        with self._locked():
            free = self.open_sockets < limit
            self._all[self._process] += free
            return free

    def give_socket(self) -> None:
        """One less is open here."""
        self._all[self._process] -= 1

    def sockets(self, caller: str, now_s: float) -> int:
        """Of one caller, in all processes."""
        with self._locked():
            row = self._find(caller, now_s)
            return 0 if row is None else int(row["sockets"].sum())

    def take_caller_socket(self, caller: str, limit: int | None, now_s: float) -> bool:
        """As `take_socket`, of one caller."""
        with self._locked():
            if (row := self._find(caller, now_s)) is None:
                return True
            free = limit is None or int(row["sockets"].sum()) < limit
            row["sockets"][self._process] += free
            return free

    def give_caller_socket(self, caller: str, now_s: float) -> None:
        with self._locked():
            if (row := self._find(caller, now_s)) is not None:
                # One that found no row when it came is not counted when it goes either.
                row["sockets"][self._process] = max(0, row["sockets"][self._process] - 1)

    def spend(self, caller: str, tokens: float, rate_per_s: float, capacity: float, now_s: float) -> float:
        """As `TokenBucket.take`: 0.0, or the seconds until there are as many, and none was taken."""
        with self._locked():
            if (row := self._find(caller, now_s)) is None:
                return 0.0
            filled_s = float(row["filled_s"])
            held = capacity if not filled_s else float(row["tokens"]) + (now_s - filled_s) * rate_per_s
            held = min(capacity, held)
            needed = min(tokens, capacity)
            wait_s = 0.0 if held >= needed else (needed - held) / rate_per_s
            row["filled_s"], row["tokens"] = now_s, held if wait_s else held - tokens
            return wait_s

    def strike_out(self, process: int) -> None:
        """That process is no more, and its sockets with it."""
        with self._locked():
            self._rows["sockets"][:, process] = 0

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.lockf(self.fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self.fd, fcntl.LOCK_UN)

    def _find(self, caller: str, now_s: float) -> np.void | None:
        """The caller's row, a new one if need be; None when there is no room, and it then counts for nothing."""
        digest = hashlib.blake2b(caller.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        name = np.uint64(int.from_bytes(digest) | 1)
        window = (int.from_bytes(digest[:4]) + np.arange(_WINDOW)) % _ROWS
        rows = self._rows[window]
        found = np.flatnonzero(rows["name"] == name)
        if not len(found):
            idle = (rows["used_s"] < now_s - _IDLE_S) & (rows["tokens"] >= 0) & ~rows["sockets"].any(axis=1)
            free = (rows["name"] == 0) | idle
            found = np.flatnonzero(free)
            if not len(found):
                return None
            self._rows[window[found[0]]] = np.zeros((), _ROW)
            self._rows["name"][window[found[0]]] = name
        at = window[found[0]]
        self._rows["used_s"][at] = now_s
        row: np.void = self._rows[at]
        return row
