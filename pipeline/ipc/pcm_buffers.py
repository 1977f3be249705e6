"""Where a codec's answers lie: memory that the process which asked shares with the worker.

A batch of sound is a megabyte. Through a socket it would have to be read, a piece at a time, by a process that has a
thousand listeners to see to, and the worker would hold it until then.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import struct
import weakref

import numpy as np
from voxgate.codecs.pcm import FRAME_SAMPLES, Pcm

_SHOWN = struct.Struct("<II")
"""Places and frames, which the descriptor travels with."""


class SharedPcmBuffers:
    """`places` for as many jobs under way, of `frames` frames over all rows each.

    Whose memory it is decides which job's sound goes to which place, and reads it before the place is another's.
    """

    def __init__(self, descriptor: int, places: int, frames: int) -> None:
        """Takes the descriptor, which is closed with it."""
        weakref.finalize(self, os.close, descriptor)
        buffer = mmap.mmap(descriptor, _size(places, frames))
        self.places, self.frames, self._descriptor = places, frames, descriptor
        self._samples = np.frombuffer(buffer, np.float32).reshape(places, frames * FRAME_SAMPLES)

    @classmethod
    def create(cls, places: int, frames: int) -> SharedPcmBuffers:
        """All zeros, and without a name in any file system."""
        descriptor = os.memfd_create("voxgate-sound", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, _size(places, frames))
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        return cls(descriptor, places, frames)

    def show(self, sock: socket.socket) -> None:
        """Have the other end of a Unix socket, where nothing was said yet, join in (`join`)."""
        socket.send_fds(sock, [_SHOWN.pack(self.places, self.frames)], [self._descriptor])

    @classmethod
    def join(cls, sock: socket.socket) -> SharedPcmBuffers | None:
        """What the other end shows, read from a socket that has something to read; None when that is none.

        It must be sealed: were it to shrink, whoever writes to it would die.
        """
        shown, descriptors, *_ = socket.recv_fds(sock, _SHOWN.size, 1)
        if len(descriptors) == 1 and len(shown) == _SHOWN.size:
            places, frames = _SHOWN.unpack(shown)
            if 0 < _size(places, frames) <= _sealed_bytes(descriptors[0]):
                return cls(descriptors[0], places, frames)
        for descriptor in descriptors:
            os.close(descriptor)
        return None

    def write(self, place: int, pcm: Pcm) -> None:
        """float32 [rows, samples]. Raises ValueError when the place does not exist, or is too small."""
        if place >= self.places or pcm.size > self._samples.shape[1]:
            raise ValueError(f"no room for {pcm.size} samples in place {place}")
        self._samples[place, : pcm.size].reshape(pcm.shape)[:] = pcm

    def read(self, place: int, rows: int, samples: int) -> Pcm:
        """float32 [rows, samples], a copy of its own."""
        pcm: Pcm = self._samples[place, : rows * samples].reshape(rows, samples).copy()
        return pcm


def _size(places: int, frames: int) -> int:
    return 4 * places * frames * FRAME_SAMPLES


def _sealed_bytes(descriptor: int) -> int:
    """The size that it will not fall below."""
    try:
        sealed = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
    except OSError:  # no memory at all
        return 0
    return os.fstat(descriptor).st_size if sealed else 0
