"""Where a codec's answers lie: memory that the process which asked shares with the worker.

A batch of sound is a megabyte. Through a socket it would have to be read, a piece at a time, by a process that has a
thousand listeners to see to, and the worker would hold it until then.
"""

from __future__ import annotations

import mmap
import os
import socket
import weakref

import numpy as np

from ..speech import FRAME_SAMPLES, Pcm

_GREETING = b"\0"
"""A descriptor travels with a byte."""


class SoundMemory:
    """`places` for as many jobs under way, of `frames` frames over all rows each.

    Whose memory it is decides which job's sound goes to which place, and reads it before the place is another's.
    """

    def __init__(self, descriptor: int, places: int, frames: int) -> None:
        """Takes the descriptor, which is closed with it."""
        buffer = mmap.mmap(descriptor, 4 * places * frames * FRAME_SAMPLES)
        self.places, self.frames, self._descriptor = places, frames, descriptor
        self._samples = np.frombuffer(buffer, np.float32).reshape(places, frames * FRAME_SAMPLES)
        weakref.finalize(self, os.close, descriptor)

    @classmethod
    def create(cls, places: int, frames: int) -> SoundMemory:
        """All zeros, and without a name in any file system."""
        descriptor = os.memfd_create("voxgate-sound")
        os.ftruncate(descriptor, 4 * places * frames * FRAME_SAMPLES)
        return cls(descriptor, places, frames)

    def show(self, sock: socket.socket) -> None:
        """Have the other end of a Unix socket, where nothing was said yet, join in (`join`)."""
        sent = np.array([self.places, self.frames], "<u4").tobytes()
        socket.send_fds(sock, [_GREETING + sent], [self._descriptor])

    @classmethod
    def join(cls, sock: socket.socket) -> SoundMemory | None:
        """What the other end shows, read from a socket that has something to read; None when it shows nothing."""
        greeting, descriptors, *_ = socket.recv_fds(sock, len(_GREETING) + 8, 1)
        if len(descriptors) != 1 or len(greeting) != len(_GREETING) + 8:
            for descriptor in descriptors:
                os.close(descriptor)
            return None
        places, frames = np.frombuffer(greeting, "<u4", offset=len(_GREETING)).tolist()
        if os.fstat(descriptors[0]).st_size < 4 * places * frames * FRAME_SAMPLES or not places * frames:
            os.close(descriptors[0])
            return None
        return cls(descriptors[0], places, frames)

    def write(self, place: int, pcm: Pcm) -> None:
        """float32 [rows, samples]. Raises ValueError when the place does not exist, or is too small."""
        if place >= self.places or pcm.size > self._samples.shape[1]:
            raise ValueError(f"no room for {pcm.size} samples in place {place}")
        self._samples[place, : pcm.size].reshape(pcm.shape)[:] = pcm

    def read(self, place: int, rows: int, samples: int) -> Pcm:
        """float32 [rows, samples], a copy of its own."""
        pcm: Pcm = self._samples[place, : rows * samples].reshape(rows, samples).copy()
        return pcm
