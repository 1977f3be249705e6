"""Shared audio buffers, sent over a socket."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import numpy as np
import pytest
from voxgate.codecs.pcm import FRAME_SAMPLES
from voxgate.pipeline.ipc.pcm_buffers import SharedPcmBuffers

FRAMES = 4


def received(descriptor: int) -> SharedPcmBuffers | None:
    """Receives a descriptor that is sent as one buffer of `FRAMES`."""
    ours, theirs = socket.socketpair()
    socket.send_fds(theirs, [np.array([1, FRAMES], "<u4").tobytes()], [descriptor])
    return SharedPcmBuffers.receive_from(ours)


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_peer_reads_what_was_written() -> None:
    ours, theirs = socket.socketpair()
    mine = SharedPcmBuffers.create(3, FRAMES)
    mine.send_to(ours)
    other = SharedPcmBuffers.receive_from(theirs)
    assert other is not None
    assert (other.count, other.frames) == (3, FRAMES)
    pcm = np.arange(2 * FRAME_SAMPLES, dtype=np.float32).reshape(2, -1)
    other.write(2, pcm)
    read = mine.read(2, 2, FRAME_SAMPLES)
    other.write(2, -pcm)
    np.testing.assert_array_equal(read, pcm)


@pytest.mark.parametrize(("index", "frames"), [(3, 1), (0, FRAMES + 1)])
def test_audio_that_does_not_fit_is_refused(index: int, frames: int) -> None:
    memory = SharedPcmBuffers.create(3, FRAMES)
    with pytest.raises(ValueError, match="must exist and hold"):
        memory.write(index, np.zeros((1, frames * FRAME_SAMPLES), np.float32))


def test_descriptor_of_other_size_or_without_seal_is_refused() -> None:
    ours, theirs = socket.socketpair()
    theirs.send(b"nothing with it")
    assert SharedPcmBuffers.receive_from(ours) is None
    before = open_files()
    with tempfile.TemporaryFile() as file:
        file.truncate(1 << 20)
        assert received(file.fileno()) is None
    assert received(SharedPcmBuffers.create(1, FRAMES - 1)._descriptor) is None
    could_shrink = os.memfd_create("could-shrink", os.MFD_ALLOW_SEALING)
    os.ftruncate(could_shrink, 1 << 20)
    assert received(could_shrink) is None
    os.close(could_shrink)
    assert open_files() == before, "every descriptor is closed again"
