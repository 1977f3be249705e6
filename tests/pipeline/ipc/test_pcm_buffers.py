"""Memory that two processes share, shown over a socket."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import numpy as np
import pytest
from voxgate.codecs.pcm import FRAME_SAMPLES
from voxgate.pipeline.ipc.pcm_buffers import SharedPcmBuffers

SHOWN_FRAMES = 4


def shown(descriptor: int) -> SharedPcmBuffers | None:
    """What `join` makes of a descriptor that is shown for one place of `SHOWN_FRAMES`."""
    ours, theirs = socket.socketpair()
    socket.send_fds(theirs, [np.array([1, SHOWN_FRAMES], "<u4").tobytes()], [descriptor])
    return SharedPcmBuffers.join(ours)


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_what_one_writes_the_other_reads() -> None:
    ours, theirs = socket.socketpair()
    mine = SharedPcmBuffers.create(3, SHOWN_FRAMES)
    mine.show(ours)
    other = SharedPcmBuffers.join(theirs)
    assert other is not None
    assert (other.places, other.frames) == (3, SHOWN_FRAMES)
    pcm = np.arange(2 * FRAME_SAMPLES, dtype=np.float32).reshape(2, -1)
    other.write(2, pcm)
    read = mine.read(2, 2, FRAME_SAMPLES)
    other.write(2, -pcm)
    np.testing.assert_array_equal(read, pcm)


@pytest.mark.parametrize(("place", "frames"), [(3, 1), (0, SHOWN_FRAMES + 1)])
def test_what_has_no_room_is_refused(place: int, frames: int) -> None:
    memory = SharedPcmBuffers.create(3, SHOWN_FRAMES)
    with pytest.raises(ValueError, match="no room"):
        memory.write(place, np.zeros((1, frames * FRAME_SAMPLES), np.float32))


def test_what_is_no_memory_of_that_size_or_could_shrink_is_not_joined() -> None:
    ours, theirs = socket.socketpair()
    theirs.send(b"nothing with it")
    assert SharedPcmBuffers.join(ours) is None
    before = open_files()
    with tempfile.TemporaryFile() as file:
        file.truncate(1 << 20)
        assert shown(file.fileno()) is None
    assert shown(SharedPcmBuffers.create(1, SHOWN_FRAMES - 1)._descriptor) is None
    could_shrink = os.memfd_create("could-shrink", os.MFD_ALLOW_SEALING)
    os.ftruncate(could_shrink, 1 << 20)
    assert shown(could_shrink) is None
    os.close(could_shrink)
    assert open_files() == before, "every descriptor is closed again"
