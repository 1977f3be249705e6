"""What callers use, counted over all processes of a gateway: in memory that they share, under a lock of the kernel's.

A process that dies in the middle of it leaves the lock free, and its counts where whoever notices can strike them out.
"""
# TODO-DOC One key at work (or, where no keys are configured, one address): what it uses now, against its limits.

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import math
import mmap
import os
import weakref
from collections.abc import Iterator

import numpy as np

from ..errors import SOCKETS_RETRY_MS, UTTERANCES_RETRY_MS, KeyLimit, RateLimited
from .keys import KeyLimits

MAX_PROCESSES = 64
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
        ("sockets", np.int32, MAX_PROCESSES),
    ]
)


class SharedUsage:
    """Shared by the processes that have `fd` open; `process` is this one's number, below MAX_PROCESSES.

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
    def create(cls) -> SharedUsage:
        """An empty one, as the process of number 0; the memory has no name in any file system."""
        fd = os.memfd_create("voxgate-shared-usage", 0)
        os.ftruncate(fd, (_ROWS + 1) * _ROW.itemsize)
        return cls(fd, 0)

    @classmethod
    def attach(cls, path: str, process: int) -> SharedUsage:
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

    def acquire_socket(self, limit: int) -> bool:
        """Have one more here, unless there are `limit` in all processes."""
        with self._locked():
            free = self.open_sockets < limit
            self._all[self._process] += free
            return free

    def release_socket(self) -> None:
        """One less is open here."""
        self._all[self._process] -= 1

    def caller_sockets(self, caller: str, now_s: float) -> int:
        """Of one caller, in all processes."""
        with self._locked():
            row = self._find(caller, now_s)
            return 0 if row is None else int(row["sockets"].sum())

    def acquire_caller_socket(self, caller: str, limit: int | None, now_s: float) -> bool:
        """As `acquire_socket`, of one caller."""
        with self._locked():
            if (row := self._find(caller, now_s)) is None:
                return True
            free = limit is None or int(row["sockets"].sum()) < limit
            row["sockets"][self._process] += free
            return free

    def release_caller_socket(self, caller: str, now_s: float) -> None:
        with self._locked():
            if (row := self._find(caller, now_s)) is not None:
                # One that found no row when it came is not counted when it goes either.
                row["sockets"][self._process] = max(0, row["sockets"][self._process] - 1)

    def take_tokens(self, caller: str, tokens: float, rate_per_s: float, capacity: float, now_s: float) -> float:
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

    def clear_process(self, process: int) -> None:
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


_MINUTE_S = 60.0


class Caller:
    """Shared by all sockets of one key. Limits that change apply at the next use; what is open stays open.

    With a `shared_usage`, what is used counts over all processes that share it.
    """

    def __init__(
        self, name: str, limits: KeyLimits, *, has_key: bool = True, shared_usage: SharedUsage | None = None
    ) -> None:
        self.name = name
        self.key = name if has_key else ""
        """The key's name; empty for an address, of which there are too many to count by."""
        self.limits = limits
        self.sockets = 0
        self.utterances = 0
        """Under way, until the engine confirmed their end."""
        self._text = _bucket(limits)
        # Addresses are many, and most have no limit that anybody would count for.
        self._shared_usage = shared_usage if has_key or limits.sockets or limits.characters_per_minute else None

    @property
    def unused(self) -> bool:
        return not self.sockets and not self.utterances

    def set_limits(self, limits: KeyLimits) -> None:
        """Other limits from now on."""
        if limits.characters_per_minute != self.limits.characters_per_minute:
            self._text = _bucket(limits)
        self.limits = limits

    def acquire_socket(self, now_s: float) -> None:
        """One more is to be opened. Raises KeyLimit when every socket of this key is open; nothing is counted then."""
        limit = self.limits.sockets
        if self._shared_usage is None:
            free = limit is None or self.sockets < limit
        else:
            free = self._shared_usage.acquire_caller_socket(self.name, limit, now_s)
        if not free:
            raise KeyLimit(f"this key has at most {limit} sockets", retry_after_ms=SOCKETS_RETRY_MS)
        self.sockets += 1

    def release_socket(self, now_s: float) -> None:
        """One was closed."""
        self.sockets -= 1
        if self._shared_usage is not None:
            self._shared_usage.release_caller_socket(self.name, now_s)

    def check_utterance(self) -> None:
        """Raises KeyLimit when as many utterances are under way as this key may have."""
        if (limit := self.limits.utterances) is not None and self.utterances >= limit:
            message = f"this key has at most {limit} utterances at once"
            raise KeyLimit(message, retry_after_ms=UTTERANCES_RETRY_MS)

    def charge_text(self, characters: int, now_s: float) -> None:
        """Count text against the minute. Raises RateLimited; nothing is counted then."""
        if self._text is None:
            return
        limit = self.limits.characters_per_minute
        if self._shared_usage is None:
            wait_s = self._text.take(now_s, characters)
        else:
            assert limit is not None, "there is a bucket"
            wait_s = self._shared_usage.take_tokens(self.name, characters, limit / _MINUTE_S, limit, now_s)
        if wait_s:
            message = f"this key has {limit} characters a minute"
            raise RateLimited(message, retry_after_ms=math.ceil(wait_s * 1000))


def _bucket(limits: KeyLimits) -> TokenBucket | None:
    if (characters := limits.characters_per_minute) is None:
        return None
    return TokenBucket(characters / _MINUTE_S, burst_s=_MINUTE_S)


BURST_S = 5.0


class TokenBucket:
    """Allows `rate_per_s` in the long run and `burst_s` seconds of it at once."""

    def __init__(self, rate_per_s: float, burst_s: float = BURST_S) -> None:
        self._rate_per_s = rate_per_s
        self._capacity = max(1.0, rate_per_s * burst_s)
        self._tokens = self._capacity
        self._filled_s: float | None = None

    def take(self, now_s: float, tokens: int = 1) -> float:
        """Take tokens. Returns 0.0, or the seconds until they are there, in which case none was taken.

        More than the bucket holds are taken when it is full, and owed: the next take waits for them.
        """
        if self._filled_s is not None:
            self._tokens = min(self._capacity, self._tokens + (now_s - self._filled_s) * self._rate_per_s)
        self._filled_s = now_s
        needed = min(float(tokens), self._capacity)
        if self._tokens >= needed:
            self._tokens -= tokens
            return 0.0
        return (needed - self._tokens) / self._rate_per_s
