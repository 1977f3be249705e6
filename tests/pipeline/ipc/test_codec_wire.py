"""Packing of codec jobs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from voxgate.pipeline.ipc.codec_wire import JOB_HEADER, KEY_BYTES, Job, JobKind


@given(
    serial=st.integers(0, 2**32 - 1),
    owners=st.lists(st.tuples(st.integers(0, 65_535), st.booleans()), min_size=1, max_size=8),
    frames=st.integers(1, 8),
    urgent=st.booleans(),
)
def test_job_survives_round_trip(serial: int, owners: list[tuple[int, bool]], frames: int, urgent: bool) -> None:
    slots, resets = zip(*owners, strict=True)
    codes = np.random.default_rng(0).integers(0, 2048, (len(owners), frames, 16)).astype(np.int16)
    packed = Job(serial, slots, resets, codes, urgent=urgent).pack()
    header, body = packed[: JOB_HEADER.size], packed[JOB_HEADER.size :]
    assert Job.body_bytes(header, codebooks=16) == len(body)
    job = Job.unpack(header, body, codebooks=16)
    assert (job.serial, job.slots, job.resets, job.urgent) == (serial, slots, resets, urgent)
    assert np.array_equal(job.codes, codes)


@pytest.mark.parametrize("kind", [JobKind.KEEP, JobKind.RESTORE])
def test_job_on_state_survives_round_trip(kind: JobKind) -> None:
    packed = Job.on_state(kind, 7, 300, bytes(range(KEY_BYTES)), codebooks=16).pack()
    header, body = packed[: JOB_HEADER.size], packed[JOB_HEADER.size :]
    assert Job.body_bytes(header, codebooks=16) == len(body)
    job = Job.unpack(header, body, codebooks=16)
    assert (job.kind, job.serial, job.slots, job.key) == (kind, 7, (300,), bytes(range(KEY_BYTES)))
    assert job.urgent
    assert job.codes.shape == (1, 0, 16)
