"""Packing of reports and markers; epochs."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from voxgate.codecs.pcm import FRAME_SAMPLES
from voxgate.pipeline.ipc.records import (
    HEADER,
    MAX_PROCESSES,
    RecordFlag,
    epoch_after,
    later_epoch,
    pack_pcm,
    pack_release,
    parse_release_marker,
    release_marker,
    split_by_process,
    unpack_pcm,
    unpack_records,
)

EPOCHS = st.integers(1, 2**31 - 1)
SLOTS = st.integers(0, 2**16)


@given(st.integers(1, 16), st.integers(1, 32), st.integers(0, 2**31))
def test_records_survive_round_trip(rows: int, groups: int, seed: int) -> None:
    sent = np.random.default_rng(seed).integers(0, 2**31, (rows, HEADER + groups), np.int32)
    assert np.array_equal(unpack_records(sent.tobytes(), groups), sent)


@given(SLOTS, EPOCHS, st.integers(1, 32))
def test_release_is_one_record_without_codes(slot: int, epoch: int, groups: int) -> None:
    (record,) = unpack_records(pack_release(slot, epoch), groups)
    assert record.tolist() == [slot, epoch, 0, RecordFlag.RELEASED]


@given(SLOTS, EPOCHS, st.integers(1, 32))
def test_audio_goes_to_its_process_and_is_no_record(slot: int, epoch: int, groups: int) -> None:
    pcm = np.linspace(-1, 1, FRAME_SAMPLES, dtype=np.float32)
    message = pack_pcm(slot, epoch, pcm)
    assert split_by_process(message, groups) == {epoch % MAX_PROCESSES: message}
    audio = unpack_pcm(message)
    assert audio is not None
    assert audio[:2] == (slot, epoch)
    assert np.array_equal(audio[2], pcm)
    assert unpack_pcm(pack_release(slot, epoch)) is None
    frame = np.array([slot, epoch, 0, RecordFlag.DECODED, *range(groups)], np.int32)
    assert unpack_pcm(frame.tobytes()) is None


@given(SLOTS, EPOCHS)
def test_release_marker_survives_round_trip(slot: int, epoch: int) -> None:
    assert parse_release_marker(release_marker(slot, epoch)) == (slot, epoch)


def test_request_names_are_no_release_markers() -> None:
    for name in ("", "17", "17-0", "released", "frame:1:2"):
        assert parse_release_marker(name) is None


def test_flags_are_distinct_bits() -> None:
    flags = [RecordFlag.END, RecordFlag.CAPPED, RecordFlag.RELEASED]
    assert len({int(flag) for flag in flags}) == 3
    assert sum(flags) == flags[0] | flags[1] | flags[2]


@given(st.integers(0, MAX_PROCESSES - 1), EPOCHS)
def test_epochs_fit_into_record_and_keep_their_process(owner: int, near: int) -> None:
    epoch = near // MAX_PROCESSES * MAX_PROCESSES + owner
    for _ in range(3):
        before, epoch = epoch, epoch_after(epoch, owner)
        assert 0 < epoch < 2**31
        assert epoch % MAX_PROCESSES == owner
        assert epoch != before
        assert later_epoch(before, epoch) == later_epoch(epoch, before) == epoch


def test_epochs_start_over_after_the_last() -> None:
    last = 2**31 - MAX_PROCESSES + 5
    assert epoch_after(0, 5) == epoch_after(last, 5) == 5
    assert epoch_after(0, 0) == epoch_after(2**31 - MAX_PROCESSES, 0) == MAX_PROCESSES
    assert later_epoch(last, 5) == later_epoch(5, last) == 5
