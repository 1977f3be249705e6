"""Shared memory for decoded audio: a process allocates it and the codec's worker writes its answers there.

A batch of audio is megabytes. Through a socket it would have to be read piece by piece by a process that serves a
thousand listeners, and the worker would have to hold it until then.
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

_DIMENSIONS = struct.Struct("<II")
"""Number of buffers, and frames of each: the bytes that accompany the descriptor."""


class SharedPcmBuffers:
    """Buffers for the audio of `count` jobs, of at most `frames` frames over all rows each.

    The process that owns them assigns a buffer to each job, and reads it before it assigns it to another one.
    """

    def __init__(self, descriptor: int, count: int, frames: int) -> None:
        """Takes ownership of the descriptor, which is closed when this object is collected."""
        weakref.finalize(self, os.close, descriptor)
        memory = mmap.mmap(descriptor, _size_bytes(count, frames))
        self.count, self.frames, self._descriptor = count, frames, descriptor
        self._samples = np.frombuffer(memory, np.float32).reshape(count, frames * FRAME_SAMPLES)
        self._bytes = memoryview(memory)

    @classmethod
    def create(cls, count: int, frames: int) -> SharedPcmBuffers:
        """Allocates zeroed buffers that have no name in any file system."""
        descriptor = os.memfd_create("voxgate-pcm", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, _size_bytes(count, frames))
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        return cls(descriptor, count, frames)

    def send_to(self, sock: socket.socket) -> None:
        """Sends the buffers over a Unix socket, as the first message on it; the peer calls `receive_from`."""
        socket.send_fds(sock, [_DIMENSIONS.pack(self.count, self.frames)], [self._descriptor])

    @classmethod
    def receive_from(cls, sock: socket.socket) -> SharedPcmBuffers | None:
        """Reads buffers from a socket that has something to read; None when the message holds no usable ones.

        They must be sealed against shrinking: a process that writes behind the end of a file dies of SIGBUS.
        """
        dimensions, descriptors, *_ = socket.recv_fds(sock, _DIMENSIONS.size, 1)
        if len(descriptors) == 1 and len(dimensions) == _DIMENSIONS.size:
            count, frames = _DIMENSIONS.unpack(dimensions)
            if 0 < _size_bytes(count, frames) <= _sealed_bytes(descriptors[0]):
                return cls(descriptors[0], count, frames)
        for descriptor in descriptors:
            os.close(descriptor)
        return None

    def write(self, index: int, pcm: Pcm) -> None:
        """Writes float32 [rows, samples] to a buffer. Raises ValueError when it does not exist or is too small."""
        if index >= self.count or pcm.size > self._samples.shape[1]:
            raise ValueError(
                f"buffer {index} must exist and hold {pcm.size} samples; "
                f"there are {self.count} of {self._samples.shape[1]} samples"
            )
        # NumPy would give up the interpreter lock for each of these short copies, and on a GPU the codec's thread then
        # waits for the talker's: for longer than all copies of a batch take.
        begin = index * self._samples.strides[0]
        self._bytes[begin : begin + pcm.nbytes] = np.ascontiguousarray(pcm, np.float32).data.cast("B")

    def read(self, index: int, rows: int, samples: int) -> Pcm:
        """Returns a copy of a buffer's audio, float32 [rows, samples]."""
        pcm: Pcm = self._samples[index, : rows * samples].reshape(rows, samples).copy()
        return pcm


def _size_bytes(count: int, frames: int) -> int:
    return 4 * count * frames * FRAME_SAMPLES


def _sealed_bytes(descriptor: int) -> int:
    """Returns the size below which the memory cannot shrink; 0 when it is not sealed."""
    try:
        sealed = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
    except OSError:  # the descriptor is not a memory file
        return 0
    return os.fstat(descriptor).st_size if sealed else 0
