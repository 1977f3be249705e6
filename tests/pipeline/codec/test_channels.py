"""Who shares a batch, and what becomes of answers that nobody reads."""

from __future__ import annotations

import socket
import threading

import numpy as np
from voxgate.pipeline.codec.channels import Asked, Channel, Channels, together
from voxgate.pipeline.codec.wire import ANSWER_HEADER, AnswerKind, Job

BOOKS = 16


def job(serial: int, slots: tuple[int, ...], frames: int) -> Job:
    return Job(serial, slots, (False,) * len(slots), np.full((len(slots), frames, BOOKS), serial, np.int16))


def channel() -> Channel:
    ours, _ = socket.socketpair()
    return Channel(ours, BOOKS)


def serials(batch: list[Asked]) -> list[int]:
    return [asked.job.serial for asked in batch]


def test_jobs_of_as_many_frames_are_decoded_together_whosever_they_are() -> None:
    a, b, c = channel(), channel(), channel()
    waiting = [Asked(job(1, (0, 1), 2), a), Asked(job(2, (2,), 4), b), Asked(job(3, (3,), 2), c)]
    assert serials(together(waiting, 8, 64)) == [1, 3]


def test_short_chunks_go_first_but_nobody_waits_for_ever() -> None:
    a, b = channel(), channel()
    waiting = [Asked(job(1, (0,), 8), a, 0.0), Asked(job(2, (1,), 1), b, 0.05), Asked(job(3, (2,), 1), a, 0.05)]
    assert serials(together(waiting, 8, 64, now_s=0.06)) == [2, 3]
    assert serials(together(waiting, 8, 64, now_s=0.2)) == [1]


def test_a_batch_stays_within_its_bounds() -> None:
    a, b, c = channel(), channel(), channel()
    waiting = [Asked(job(1, (0, 1), 2), a), Asked(job(2, (2, 3), 2), b), Asked(job(3, (4,), 2), c)]
    assert serials(together(waiting, 8, 6)) == [1, 3]
    assert serials(together(waiting, 3, 64)) == [1, 3]


def test_a_streams_jobs_keep_their_order_and_it_is_once_in_a_batch() -> None:
    a = channel()
    same_stream = [Asked(job(1, (0, 1), 2), a), Asked(job(2, (1, 2), 2), a)]
    assert serials(together(same_stream, 8, 64)) == [1]
    overtaking = [Asked(job(1, (0, 1), 4), a), Asked(job(2, (1,), 1), a), Asked(job(3, (2,), 2), a)]
    assert serials(together(overtaking, 8, 64)) == [3]


def test_a_job_arrives_whole_in_whatever_pieces() -> None:
    ours, theirs = socket.socketpair()
    reader, sent = Channel(ours, BOOKS), job(7, (3, 5), 2)
    packed = sent.pack()
    for byte in packed[:-1]:
        theirs.send(bytes([byte]))
        assert reader.read() == []
    theirs.send(packed[-1:] + packed)
    first, second = reader.read()
    assert first.slots == second.slots == (3, 5)
    np.testing.assert_array_equal(first.codes, sent.codes)
    theirs.close()
    assert reader.read() == []
    assert not reader.open


def test_an_answer_larger_than_the_kernel_takes_is_written_before_anything_else_is_waited_for() -> None:
    owner, ours = socket.socketpair()
    channels = Channels(ours, None, b"", BOOKS)
    payload = bytes(4 << 20)
    channels.owner.answer(AnswerKind.PCM, 1, payload)
    assert channels.owner.full
    waiting = threading.Thread(target=channels.next_batch, args=(8, 64))
    waiting.start()  # nobody sends a job
    owner.settimeout(20)
    received = 0
    while received < ANSWER_HEADER.size + len(payload):
        received += len(owner.recv(1 << 20))
    owner.close()
    waiting.join(20)
    assert not waiting.is_alive()
    channels.close()


def test_one_that_does_not_read_is_not_waited_for_again() -> None:
    _owner, ours = socket.socketpair()
    channels = Channels(ours, None, b"", BOOKS)
    channels.owner.answer(AnswerKind.PCM, 1, bytes(4 << 20))
    channels._flush()
    assert channels.owner.lags
    channels.owner.answer(AnswerKind.PCM, 2, bytes(80 << 20))
    assert not channels.owner.open, "what it leaves unread is bounded"
    channels.close()
