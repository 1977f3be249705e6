"""Batches from jobs of several processes, and channels that are slow, broken or refused."""

from __future__ import annotations

import errno
import socket
import uuid
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from fakes.waiting import DEADLINE_S
from voxgate.codecs.pcm import FRAME_SAMPLES
from voxgate.pipeline.codec import channels as channels_module
from voxgate.pipeline.codec.channels import MAX_UNREAD_BYTES, JobChannel, JobChannels, QueuedJob, make_batch
from voxgate.pipeline.ipc.codec_wire import ANSWER_HEADER, AnswerKind, Job, JobKind
from voxgate.pipeline.ipc.pcm_buffers import SharedPcmBuffers

CODEBOOKS = 16


def job(serial: int, slots: tuple[int, ...], frames: int, buffer: int = 0) -> Job:
    return Job(serial, slots, (False,) * len(slots), np.full((len(slots), frames, CODEBOOKS), serial, np.int16), buffer)


def channel() -> JobChannel:
    ours, _ = socket.socketpair()
    return JobChannel(ours, CODEBOOKS)


def serials(batch: list[QueuedJob]) -> list[int]:
    return [asked.job.serial for asked in batch]


def test_jobs_of_several_processes_with_equal_frames_share_a_batch() -> None:
    a, b, c = channel(), channel(), channel()
    waiting = [QueuedJob(job(1, (0, 1), 2), a), QueuedJob(job(2, (2,), 4), b), QueuedJob(job(3, (3,), 2), c)]
    assert serials(make_batch(waiting, 8, 64)) == [1, 3]


def test_short_chunks_go_first_until_a_job_waits_too_long() -> None:
    a, b = channel(), channel()
    waiting = [
        QueuedJob(job(1, (0,), 8), a, 0.0),
        QueuedJob(job(2, (1,), 1), b, 0.05),
        QueuedJob(job(3, (2,), 1), a, 0.05),
    ]
    assert serials(make_batch(waiting, 8, 64, now_s=0.06)) == [2, 3]
    assert serials(make_batch(waiting, 8, 64, now_s=0.2)) == [1]


def test_batch_stays_within_bounds() -> None:
    a, b, c = channel(), channel(), channel()
    waiting = [QueuedJob(job(1, (0, 1), 2), a), QueuedJob(job(2, (2, 3), 2), b), QueuedJob(job(3, (4,), 2), c)]
    assert serials(make_batch(waiting, 8, 6)) == [1, 3]
    assert serials(make_batch(waiting, 3, 64)) == [1, 3]


def test_slot_is_once_in_a_batch_and_in_order() -> None:
    a = channel()
    same_stream = [QueuedJob(job(1, (0, 1), 2), a), QueuedJob(job(2, (1, 2), 2), a)]
    assert serials(make_batch(same_stream, 8, 64)) == [1]
    overtaking = [QueuedJob(job(1, (0, 1), 4), a), QueuedJob(job(2, (1,), 1), a), QueuedJob(job(3, (2,), 2), a)]
    assert serials(make_batch(overtaking, 8, 64)) == [3]


def test_job_is_assembled_from_pieces() -> None:
    ours, theirs = socket.socketpair()
    reader, sent = JobChannel(ours, CODEBOOKS), job(7, (3, 5), 2)
    SharedPcmBuffers.create(1, 4).send_to(theirs)
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


def test_audio_is_written_to_the_buffer_of_the_job() -> None:
    ours, theirs = socket.socketpair()
    reader, memory = JobChannel(ours, CODEBOOKS), SharedPcmBuffers.create(2, 4)
    memory.send_to(theirs)
    theirs.send(job(7, (3, 5), 2, buffer=1).pack())
    (asked,) = reader.read()
    pcm = np.arange(2 * 2 * FRAME_SAMPLES, dtype=np.float32).reshape(2, -1)
    reader.answer_pcm(asked, pcm, 0.001)
    assert ANSWER_HEADER.unpack(theirs.recv(1 << 16)) == (AnswerKind.PCM, 7, 1000, 0)
    np.testing.assert_array_equal(memory.read(1, 2, 2 * FRAME_SAMPLES), pcm)
    assert not memory.read(0, 4, FRAME_SAMPLES).any()


def test_audio_without_buffer_fails_the_job() -> None:
    ours, theirs = socket.socketpair()
    reader = JobChannel(ours, CODEBOOKS)
    SharedPcmBuffers.create(1, 4).send_to(theirs)
    theirs.send(job(7, (3,), 2, buffer=1).pack() + job(8, (3, 4, 5), 2).pack())
    for asked in reader.read():
        reader.answer_pcm(asked, np.zeros((len(asked.slots), 2 * FRAME_SAMPLES), np.float32), 0.0)
    answers = theirs.recv(1 << 16)
    assert answers.count(b"must exist and hold") == 2
    assert reader.open


def test_channel_without_shared_buffers_is_closed() -> None:
    ours, theirs = socket.socketpair()
    reader = JobChannel(ours, CODEBOOKS)
    theirs.send(job(7, (3,), 2).pack())
    assert reader.read() == []
    assert not reader.open


def test_next_batch_gathers_jobs_that_arrive_in_time() -> None:
    owner, ours = socket.socketpair()
    channels = JobChannels(ours, None, b"", CODEBOOKS)
    SharedPcmBuffers.create(1, 4).send_to(owner)
    assert channels.next_batch(8, 64, wait_s=0.0) == []
    owner.send(job(1, (1,), 1).pack() + job(2, (2,), 1).pack())
    assert serials(channels.next_batch(8, 64, 0.001, 0.0)) == [1, 2]
    owner.close()
    assert channels.next_batch(8, 64) == []
    channels.close()


class Held:
    """A channel whose jobs wait while an utterance begins; time passes only while they are asked whether to wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.owner, ours = socket.socketpair()
        self.channels = JobChannels(ours, None, b"", CODEBOOKS)
        SharedPcmBuffers.create(1, 4).send_to(self.owner)
        self.now_s, self.asked = 1.0, 0
        monkeypatch.setattr(channels_module.time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(channels_module, "YIELD_POLL_S", 0.0)

    def batch(self, *jobs: Job, held: int = 1000, wait_s: float | None = None, then: Job | None = None) -> list[int]:
        """The batch of `jobs`, which have to wait `held` times 1 ms; `then` arrives meanwhile."""
        self.asked = 0

        def begins(now_s: float) -> bool:
            assert now_s == self.now_s
            self.asked += 1
            self.now_s += 0.001
            if then is not None and self.asked == 2:
                self.owner.send(then.pack())
            return self.asked <= held

        self.owner.send(b"".join(job.pack() for job in jobs))
        return serials(self.channels.next_batch(8, 256, 0.0, wait_s, begins))


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    held = Held(monkeypatch)
    yield held
    held.channels.close()
    held.owner.close()


def test_jobs_wait_while_an_utterance_begins_and_others_join_them(held: Held) -> None:
    assert held.batch(job(1, (1,), 2), held=3, then=job(2, (2,), 2)) == [1, 2]
    assert held.asked == 4


def test_jobs_wait_for_a_bounded_time(held: Held) -> None:
    assert held.batch(job(1, (1,), 2)) == [1]
    assert held.asked * 0.001 == pytest.approx(channels_module.YIELD_S, abs=0.0011)


@pytest.mark.parametrize(
    "urgent",
    [
        replace(job(2, (2,), 1), urgent=True),
        Job.on_state(JobKind.RESTORE, 2, 2, bytes(16), CODEBOOKS),
    ],
    ids=["nothing ahead", "restores a state"],
)
def test_urgent_job_does_not_wait_nor_do_those_with_it(held: Held, urgent: Job) -> None:
    assert held.batch(job(1, (1,), 2), urgent) in ([1], [2])
    assert not held.asked


def test_many_frames_do_not_wait(held: Held) -> None:
    most = channels_module.YIELD_FRAMES // 8
    assert len(held.batch(*(job(slot, (slot,), 8) for slot in range(most)), held=1)) == most
    assert held.asked == 2
    assert held.batch(*(job(slot, (slot,), 8) for slot in range(most + 1)))
    assert not held.asked


def test_jobs_behind_a_batch_in_flight_are_asked_for_later(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    polls: list[float | None] = []
    poll = held.channels._poll
    monkeypatch.setattr(held.channels, "_poll", lambda wait_s: (polls.append(wait_s), poll(0.0)))
    monkeypatch.setattr(channels_module, "YIELD_POLL_S", 0.001)
    assert held.batch(job(1, (1,), 2), wait_s=0.0003) == []
    assert polls == [0.0, 0.0003], "the batch in flight may be done"
    assert held.batch(held=0, wait_s=0.0) == [1]


def test_end_of_the_owner_ends_the_wait(held: Held) -> None:
    """Its socket stays readable, so that waiting for others would not rest."""
    held.channels._queue.append(QueuedJob(job(1, (1,), 2), channel(), held.now_s))
    held.channels.owner.open = False
    assert held.batch() == []
    assert not held.asked


def test_channel_that_does_not_read_is_closed() -> None:
    _owner, ours = socket.socketpair()
    channels = JobChannels(ours, None, b"", CODEBOOKS)
    channels.owner.answer(AnswerKind.FAILED, 1, bytes(MAX_UNREAD_BYTES // 2))
    assert channels.owner.open
    channels.owner.answer(AnswerKind.FAILED, 2, bytes(MAX_UNREAD_BYTES))
    assert not channels.owner.open, "what it leaves unread is bounded"
    channels.close()


def test_short_poll_is_not_rounded_up(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(channels_module.time, "sleep", slept.append)
    ours, theirs = socket.socketpair()
    channels = JobChannels(ours, None, b"", CODEBOOKS)
    waited: list[float | None] = []
    monkeypatch.setattr(channels._selector, "select", lambda timeout: waited.append(timeout) or [])
    for look_s in (0.0003, 0.0025, 0.0, None):
        channels._poll(look_s)
    assert (slept, waited) == ([0.0003], [0.0, 0.002, 0.0, None]), "epoll rounds up to whole milliseconds"
    channels.close()
    theirs.close()


def test_failed_accept_does_not_end_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    owner, theirs = socket.socketpair()
    address = f"voxgate-test-{uuid.uuid4().hex}"
    channels = JobChannels(theirs, address, b"", CODEBOOKS)
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(f"\0{address}")

    def no_descriptors(_: socket.socket) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(socket.socket, "accept", no_descriptors)
        assert channels.next_batch(8, 64, wait_s=0.0) == []
    assert channels.next_batch(8, 64, wait_s=0.0) == []
    peer.settimeout(DEADLINE_S)
    assert ANSWER_HEADER.unpack(peer.recv(ANSWER_HEADER.size))[0] == AnswerKind.READY
    channels.close()
    for end in (owner, peer):
        end.close()
