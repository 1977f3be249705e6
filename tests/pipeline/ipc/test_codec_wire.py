"""Packing of codec jobs."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from voxgate.pipeline.ipc.codec_wire import JOB_HEADER, Job


@given(
    serial=st.integers(0, 2**32 - 1),
    owners=st.lists(st.tuples(st.integers(0, 65_535), st.booleans()), min_size=1, max_size=8),
    frames=st.integers(1, 8),
)
def test_job_survives_round_trip(serial: int, owners: list[tuple[int, bool]], frames: int) -> None:
    slots, resets = zip(*owners, strict=True)
    codes = np.random.default_rng(0).integers(0, 2048, (len(owners), frames, 16)).astype(np.int16)
    packed = Job(serial, slots, resets, codes).pack()
    header, body = packed[: JOB_HEADER.size], packed[JOB_HEADER.size :]
    assert Job.body_bytes(header, codebooks=16) == len(body)
    job = Job.unpack(header, body, codebooks=16)
    assert (job.serial, job.slots, job.resets) == (serial, slots, resets)
    assert np.array_equal(job.codes, codes)
