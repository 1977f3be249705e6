"""Token buckets, and use of sockets and text per caller in memory shared by all processes.

The shared counts are guarded by a lock of the kernel, which is released when a process dies; the counts of a dead
process are cleared by the speech process.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import mmap
import os
import weakref
from collections import Counter
from collections.abc import Iterator

import numpy as np

MAX_PROCESSES = 64
"""Processes that can share counts: the speech process and its workers."""
_ROWS = 4096
"""Callers that are counted one by one; the others share one more row, so that limits hold for them together."""
_OVERFLOW, _ALL = _ROWS, _ROWS + 1
"""Rows of the callers without a row of their own, and of all callers."""
_WINDOW = 64
"""Rows in which a caller may be stored, starting at its hash."""
_IDLE_S = 120.0
"""Seconds after which an unused row without sockets and debt may be reused; its token bucket is full by then."""
_ROW = np.dtype(
    [
        ("name", np.uint64),
        ("tokens", np.float64),
        ("filled_s", np.float64),
        ("used_s", np.float64),
        ("sockets", np.int32, MAX_PROCESSES),
    ]
)


class SharedUsage:
    """A table of use by caller, shared by all processes that have `fd` open; `process` is the number of this one.

    Every call takes microseconds. Times are those of the monotonic clock, which all processes share.
    """

    def __init__(self, fd: int, process: int) -> None:
        self.fd = fd
        self._process = process
        self._rows = np.frombuffer(mmap.mmap(fd, (_ALL + 1) * _ROW.itemsize), _ROW)
        self._all = self._rows["sockets"][_ALL]
        """Sockets of all callers by process."""
        self._overflowed: Counter[str] = Counter()
        """This process's sockets in the shared row, by caller: a caller keeps the row until they are closed."""
        weakref.finalize(self, os.close, fd)

    @classmethod
    def create(cls) -> SharedUsage:
        """Creates an empty table in anonymous memory, as process 0."""
        fd = os.memfd_create("voxgate-shared-usage", 0)
        os.ftruncate(fd, (_ALL + 1) * _ROW.itemsize)
        return cls(fd, 0)

    @classmethod
    def attach(cls, path: str, process: int) -> SharedUsage:
        """Opens the table at `path` of another process. Raises OSError when that process has ended."""
        return cls(os.open(path, os.O_RDWR), process)

    @property
    def path(self) -> str:
        """The path with which other processes of this machine can `attach`."""
        return f"/proc/{os.getpid()}/fd/{self.fd}"

    @property
    def open_sockets(self) -> int:
        """Open sockets of all processes."""
        return int(self._all.sum())

    def acquire_socket(self, limit: int) -> bool:
        """Counts one more socket of this process; False when all processes together have `limit`."""
        with self._locked():
            free = self.open_sockets < limit
            self._all[self._process] += free
            return free

    def release_socket(self) -> None:
        """Counts one socket of this process less."""
        self._all[self._process] -= 1

    def caller_sockets(self, caller: str, now_s: float) -> int:
        """Open sockets of one caller in all processes; of all that share its row, if it has none of its own."""
        with self._locked():
            return int(self._rows["sockets"][self._find(caller, now_s)].sum())

    def acquire_caller_socket(self, caller: str, limit: int | None, now_s: float) -> bool:
        """As `acquire_socket`, for one caller."""
        with self._locked():
            at = self._find(caller, now_s)
            sockets = self._rows["sockets"][at]
            free = limit is None or int(sockets.sum()) < limit
            sockets[self._process] += free
            if at == _OVERFLOW and free:
                self._overflowed[caller] += 1
            return free

    def release_caller_socket(self, caller: str, now_s: float) -> None:
        with self._locked():
            at = self._find(caller, now_s)
            self._rows["sockets"][at, self._process] -= 1
            if at == _OVERFLOW:
                self._overflowed -= Counter((caller,))

    def take_tokens(self, caller: str, tokens: float, rate_per_s: float, capacity: float, now_s: float) -> float:
        """As `TokenBucket.take`, for one caller in all processes."""
        with self._locked():
            row = self._rows[self._find(caller, now_s)]
            filled_s = float(row["filled_s"])
            held = refilled(float(row["tokens"]), now_s - filled_s, rate_per_s, capacity) if filled_s else capacity
            row["filled_s"] = now_s
            row["tokens"], wait_s = withdraw(held, tokens, rate_per_s, capacity)
            return wait_s

    def available_tokens(self, caller: str, rate_per_s: float, capacity: float, now_s: float) -> float:
        """As `TokenBucket.available`, for one caller in all processes."""
        with self._locked():
            row = self._rows[self._find(caller, now_s)]
            filled_s = float(row["filled_s"])
            return refilled(float(row["tokens"]), now_s - filled_s, rate_per_s, capacity) if filled_s else capacity

    def clear_process(self, process: int) -> None:
        """Clears the sockets of a process that has ended."""
        with self._locked():
            self._rows["sockets"][:, process] = 0

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.lockf(self.fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self.fd, fcntl.LOCK_UN)

    def _find(self, caller: str, now_s: float) -> int:
        """The row of a caller, a new one if necessary, or the shared row when its window is full."""
        if caller in self._overflowed:
            return _OVERFLOW
        digest = hashlib.blake2b(caller.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        name = np.uint64(int.from_bytes(digest) | 1)
        window = (int.from_bytes(digest[:4]) + np.arange(_WINDOW)) % _ROWS
        rows = self._rows[window]
        found = np.flatnonzero(rows["name"] == name)
        if not len(found):
            idle = (rows["used_s"] < now_s - _IDLE_S) & (rows["tokens"] >= 0) & ~rows["sockets"].any(axis=1)
            found = np.flatnonzero((rows["name"] == 0) | idle)
            if not len(found):
                return _OVERFLOW
            self._rows[window[found[0]]] = np.zeros((), _ROW)
            self._rows["name"][window[found[0]]] = name
        at = int(window[found[0]])
        self._rows["used_s"][at] = now_s
        return at


BURST_S = 5.0
"""Seconds' worth of the rate that may be used at once."""


class TokenBucket:
    """A token bucket: `rate_per_s` tokens a second in the long run, `burst_s` seconds' worth at once."""

    def __init__(self, rate_per_s: float, burst_s: float = BURST_S) -> None:
        self._rate_per_s = rate_per_s
        self._capacity = max(1.0, rate_per_s * burst_s)
        self._tokens = self._capacity
        self._filled_s: float | None = None

    def take(self, now_s: float, tokens: int = 1) -> float:
        """Takes tokens and returns 0.0; or takes none and returns the seconds until they are available.

        More tokens than the capacity are taken when the bucket is full; the debt delays the next take.
        """
        if self._filled_s is not None:
            self._tokens = refilled(self._tokens, now_s - self._filled_s, self._rate_per_s, self._capacity)
        self._filled_s = now_s
        self._tokens, wait_s = withdraw(self._tokens, tokens, self._rate_per_s, self._capacity)
        return wait_s

    def available(self, now_s: float) -> float:
        """Returns the tokens that can be taken now; negative while there is a debt."""
        if self._filled_s is None:
            return self._tokens
        return refilled(self._tokens, now_s - self._filled_s, self._rate_per_s, self._capacity)

    def reserve(self, now_s: float) -> float:
        """Takes one token in any case; returns the seconds until it is available, 0.0 if it is."""
        if self._filled_s is not None:
            self._tokens = refilled(self._tokens, now_s - self._filled_s, self._rate_per_s, self._capacity)
        self._filled_s = now_s
        self._tokens -= 1
        return max(0.0, -self._tokens / self._rate_per_s)


def refilled(tokens: float, elapsed_s: float, rate_per_s: float, capacity: float) -> float:
    """Tokens of a bucket after `elapsed_s` seconds."""
    return min(capacity, tokens + elapsed_s * rate_per_s)


def withdraw(held: float, tokens: float, rate_per_s: float, capacity: float) -> tuple[float, float]:
    """Withdraws `tokens` from a bucket with `held`: the tokens left, and the wait in seconds, 0.0 if it succeeded."""
    needed = min(float(tokens), capacity)
    if held >= needed:
        return held - tokens, 0.0
    return held, (needed - held) / rate_per_s
