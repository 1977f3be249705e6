"""The codec service with its real worker process and the demo voice's codec."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
import torch
import uvloop
from fakes.waiting import DEADLINE_S
from voxgate.codecs.neural.config import KEPT_STATES
from voxgate.codecs.neural.decoder import CodecDecoder
from voxgate.pipeline.codec.client import InFlightJob
from voxgate.pipeline.codec.resumable_stream import ResumableStream
from voxgate.pipeline.codec.service import CodecService
from voxgate.pipeline.codec.stream import CodecContext, CodecStream
from voxgate.pipeline.errors import AtCapacity, EngineError, EngineLost, EngineNotReady, GenerationFailed
from voxgate.pipeline.ipc.codec_wire import Job, JobKind

DEMO = Path(__file__).parents[3] / "voices" / "demo" / "speech_tokenizer"
SLOTS = 4
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def decoder() -> CodecDecoder:
    torch.set_num_threads(1)
    return CodecDecoder.from_checkpoint(DEMO)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service() -> AsyncIterator[CodecService]:
    service = CodecService(DEMO, slots=SLOTS, max_job_frames=4)
    await service.start()
    yield service
    await service.close()


def codes_of(seed: int, frames: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 512, (frames, 16)).astype(np.int16)


def expected(decoder: CodecDecoder, codes: np.ndarray) -> np.ndarray:
    return decoder.decode_all(torch.from_numpy(codes.astype(np.int64))[None])[0].numpy()


async def speak(stream: CodecStream, codes: np.ndarray, at_once: int) -> np.ndarray:
    """Pushes frames `at_once` at a time, reading the audio of each push; then finishes."""
    heard = [np.zeros(0, np.float32)]

    async def listen(until_frames: int) -> None:
        while sum(map(len, heard)) < until_frames * 1920:
            heard.append(await anext(stream))
            stream.advance(sum(map(len, heard)) // 1920)

    for first in range(0, len(codes), at_once):
        stream.push(codes[first : first + at_once])
        await listen(min(first + at_once, len(codes)))
    stream.finish()
    assert [pcm async for pcm in stream] == []
    await stream.aclose()
    return np.concatenate(heard)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def ended(pid: int) -> None:
    """Waits until a process that is not a child of this one has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(descriptor, over.set)
    try:
        await over.wait()
    finally:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)


async def test_interleaved_streams_each_equal_a_single_pass(service: CodecService, decoder: CodecDecoder) -> None:
    for generation in range(2):  # the second one in the slots of the first
        utterances = [codes_of(10 * generation + i, 9 + 2 * i) for i in range(SLOTS)]
        async with asyncio.timeout(DEADLINE_S):
            spoken = await asyncio.gather(
                *(speak(service.open(), codes, at_once=1 + i) for i, codes in enumerate(utterances))
            )
        for codes, pcm in zip(utterances, spoken, strict=True):
            assert np.abs(pcm - expected(decoder, codes)).max() < 1e-5


@pytest.mark.parametrize("frames", [1, 6, 30])
async def test_stream_continues_its_context(service: CodecService, decoder: CodecDecoder, frames: int) -> None:
    context, codes = codes_of(8, frames), codes_of(9, 7)
    stream = service.open(context=CodecContext(context[:0], context))
    second, other = service.open(), codes_of(10, 9)
    async with asyncio.timeout(DEADLINE_S):
        spoken, undisturbed = await asyncio.gather(speak(stream, codes, at_once=2), speak(second, other, at_once=3))
    whole = expected(decoder, np.concatenate([context, codes]))
    assert np.abs(spoken - whole[frames * 1920 :]).max() < 1e-5
    assert np.abs(undisturbed - expected(decoder, other)).max() < 1e-5


@pytest.mark.parametrize(
    "code", [np.int16(600), np.int16(-1), np.int64(65_537)], ids=["too large", "negative", "wraps in 16 bits"]
)
async def test_refused_context_takes_no_slot(service: CodecService, code: np.integer) -> None:
    free = len(service._free)
    with pytest.raises(ValueError, match="codes must lie in"):
        service.open(context=CodecContext.reference(np.full((3, 16), code)))
    assert len(service._free) == free


class Submitted:
    """Counts the jobs of a service: frames of all streams, and jobs on states."""

    def __init__(self, service: CodecService, monkeypatch: pytest.MonkeyPatch) -> None:
        self.frames, self.kinds = 0, Counter[JobKind]()
        submit = service._submit

        def counted(job: Job, in_flight: InFlightJob) -> None:
            self.frames += job.codes.shape[0] * job.codes.shape[1]
            self.kinds[job.kind] += 1
            submit(job, in_flight)

        monkeypatch.setattr(service, "_submit", counted)


async def test_reference_is_decoded_once_and_later_streams_are_equal_to_the_bit(
    service: CodecService, decoder: CodecDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream behind the kept state has the samples of the one that decoded the reference itself."""
    reference, codes = codes_of(21, 30), codes_of(22, 9)
    spoken: list[np.ndarray] = []
    jobs: list[Submitted] = []
    for _ in range(3):
        jobs.append(Submitted(service, monkeypatch))
        async with asyncio.timeout(DEADLINE_S):
            spoken.append(await speak(service.open(context=CodecContext.reference(reference)), codes, at_once=1))
        monkeypatch.undo()
    whole = expected(decoder, np.concatenate([reference, codes]))
    assert np.abs(spoken[0] - whole[30 * 1920 :]).max() < 1e-5
    assert np.array_equal(spoken[0], spoken[1])
    assert np.array_equal(spoken[0], spoken[2])
    assert [each.frames for each in jobs] == [39, 9, 9]
    assert [each.kinds[JobKind.KEEP] for each in jobs] == [1, 0, 0]


async def test_streams_that_begin_together_behind_a_new_reference_are_all_right(
    service: CodecService, decoder: CodecDecoder
) -> None:
    reference, others = codes_of(23, 13), [codes_of(30 + i, 6 + i) for i in range(SLOTS)]
    contexts = [CodecContext(reference, codes_of(40 + i, i)) for i in range(SLOTS)]
    async with asyncio.timeout(DEADLINE_S):
        spoken = await asyncio.gather(
            *(
                speak(service.open(context=context), codes, at_once=1 + i)
                for i, (context, codes) in enumerate(zip(contexts, others, strict=True))
            )
        )
    for context, codes, pcm in zip(contexts, others, spoken, strict=True):
        whole = expected(decoder, np.concatenate([reference, context.own, codes]))
        assert np.abs(pcm - whole[(13 + len(context.own)) * 1920 :]).max() < 1e-5


async def test_states_beyond_the_limit_are_decoded_again(
    service: CodecService, decoder: CodecDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = codes_of(50, 2)
    references = [codes_of(100 + n, 2) for n in range(KEPT_STATES + 1)]
    for reference in [*references, references[-1], references[0]]:
        jobs = Submitted(service, monkeypatch)
        async with asyncio.timeout(DEADLINE_S):
            pcm = await speak(service.open(context=CodecContext.reference(reference)), codes, at_once=2)
        monkeypatch.undo()
        whole = expected(decoder, np.concatenate([reference, codes]))
        assert np.abs(pcm - whole[2 * 1920 :]).max() < 1e-5
        if reference is references[-1]:
            last = jobs
    assert (last.frames, jobs.frames) == (2, 4), "the newest is kept, the oldest was given up"


@pytest.mark.parametrize("lost", [False, True])
async def test_utterance_behind_reference_goes_on_in_another_slot_or_worker(
    service: CodecService, decoder: CodecDecoder, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """In another slot it continues from the kept state; a new worker decodes the reference again."""
    reference, codes = codes_of(70, 12), codes_of(71, 9)
    after = CodecService(DEMO, slots=1, max_job_frames=4) if lost else service
    if lost:
        await after.start()
    losses: list[int] = []
    first = service.open(context=CodecContext.reference(reference))
    stream = ResumableStream(first, lambda: losses.append(1), reference)
    heard = np.zeros(0, np.float32)
    async with asyncio.timeout(DEADLINE_S):
        stream.push(codes[:4])
        while len(heard) < 3 * 1920:
            heard = np.concatenate([heard, await anext(stream)])
            stream.advance(len(heard) // 1920)
        await stream.suspend()
        jobs = Submitted(after, monkeypatch)
        stream.resume(after.open(context=stream.context))
        stream.push(codes[4:])
        stream.finish()
        try:
            while True:
                heard = np.concatenate([heard, await anext(stream)])
                stream.advance(len(heard) // 1920)
        except StopAsyncIteration:
            pass
    monkeypatch.undo()
    await stream.aclose()
    whole = expected(decoder, np.concatenate([reference, codes]))
    assert np.abs(heard - whole[12 * 1920 :]).max() < 1e-5
    assert jobs.frames == 9 + 12 * lost
    assert jobs.kinds[JobKind.KEEP] == lost
    if lost:
        await after.close()


async def test_stream_closed_before_its_reference_was_decoded_leaves_its_slot_usable(
    service: CodecService, decoder: CodecDecoder
) -> None:
    for _ in range(2 * SLOTS):
        stream = service.open(context=CodecContext.reference(codes_of(60, 20)))
        stream.push(codes_of(61, 1))
        await stream.aclose()
    codes = codes_of(62, 5)
    async with asyncio.timeout(DEADLINE_S):
        spoken = await asyncio.gather(*(speak(service.open(), codes, at_once=2) for _ in range(SLOTS)))
    for pcm in spoken:
        assert np.abs(pcm - expected(decoder, codes)).max() < 1e-5


async def test_frames_pushed_at_once_are_all_decoded(service: CodecService, decoder: CodecDecoder) -> None:
    stream, codes = service.open(), codes_of(3, 21)
    stream.push(codes)
    stream.finish()
    async with asyncio.timeout(DEADLINE_S):
        runs = [pcm async for pcm in stream]
    await stream.aclose()
    assert len(runs[0]) == 1920  # the first frame is heard at once
    assert len(runs) < 21  # the rest in larger chunks
    assert np.abs(np.concatenate(runs) - expected(decoder, codes)).max() < 1e-5


async def test_slot_released_with_job_in_flight_starts_clean(service: CodecService, decoder: CodecDecoder) -> None:
    codes = codes_of(5, 6)
    for _ in range(3):
        abandoned = [service.open() for _ in range(SLOTS)]
        for stream in abandoned:
            stream.push(codes_of(6, 12))
        await anext(abandoned[0])  # the other jobs are still in flight
        for stream in abandoned:
            await stream.aclose()
        async with asyncio.timeout(DEADLINE_S):
            pcm = await speak(service.open(), codes, at_once=6)
        assert np.abs(pcm - expected(decoder, codes)).max() < 1e-5


async def test_opening_without_free_slot_raises_at_capacity(service: CodecService) -> None:
    streams = [service.open() for _ in range(SLOTS)]
    with pytest.raises(AtCapacity):
        service.open()
    await streams[0].aclose()
    await service.open().aclose()
    for stream in streams:
        await stream.aclose()


@pytest.mark.parametrize("codes", [codes_of(0, 2)[:, :15], codes_of(0, 2) + 512, codes_of(0, 2) - 512])
async def test_invalid_codes_are_refused_at_push(service: CodecService, codes: np.ndarray) -> None:
    stream = service.open()
    with pytest.raises(ValueError, match="codes must"):
        stream.push(codes)
    await stream.aclose()


async def test_undecodable_codes_fail_their_stream_alone(
    service: CodecService, decoder: CodecDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = service.open(), service.open()
    with monkeypatch.context() as unchecked:
        unchecked.setattr(bad, "_check", lambda codes: codes)
        bad.push(codes_of(0, 1) + 600)
        good.push(codes_of(8, 1))  # in the same batch
    with pytest.raises(GenerationFailed, match="could not decode"):
        await anext(bad)
    heard = await anext(good)
    good.push(codes_of(9, 2))
    good.finish()
    heard = np.concatenate([heard, *[pcm async for pcm in good]])
    both = np.concatenate([codes_of(8, 1), codes_of(9, 2)])
    assert np.abs(heard - expected(decoder, both)).max() < 1e-5
    for stream in (bad, good):
        await stream.aclose()
    codes = codes_of(8, 3)
    assert np.abs(await speak(service.open(), codes, 3) - expected(decoder, codes)).max() < 1e-5


async def test_failure_of_single_stream_states_the_reason(
    service: CodecService, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = service.open()
    with monkeypatch.context() as unchecked:
        unchecked.setattr(stream, "_check", lambda codes: codes)
        stream.push(codes_of(0, 1) + 600)
    with pytest.raises(GenerationFailed, match="could not decode: ValueError: codes must lie"):
        await anext(stream)
    await stream.aclose()


async def test_jobs_are_timed_by_frames(service: CodecService) -> None:
    service.times.reset()
    await speak(service.open(), codes_of(1, 3), at_once=1)
    (summary,) = service.times.summaries()
    assert (summary.batch, summary.steps) == (1, 3)
    assert 0 < summary.p50_s <= summary.p90_s < 5


async def test_killed_worker_fails_every_stream() -> None:
    deaths: list[EngineLost] = []
    service = CodecService(DEMO, slots=2, max_job_frames=1, on_death=deaths.append)
    await service.start()
    pid = service.pid
    assert pid is not None
    idle, busy = service.open(), service.open()
    os.kill(pid, signal.SIGSTOP)  # so that the job is surely in flight
    busy.push(codes_of(0, 1))
    await asyncio.sleep(0)
    os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(DEADLINE_S):
        for stream in (idle, busy):
            with pytest.raises(EngineLost):
                await anext(stream)
    assert len(deaths) == 1
    with pytest.raises(EngineNotReady):
        service.open()
    await service.close()
    assert not alive(pid)


async def test_hanging_worker_is_killed() -> None:
    deaths: list[EngineLost] = []
    service = CodecService(DEMO, slots=1, max_job_frames=1, job_deadline_s=0.1, on_death=deaths.append)
    await service.start()
    pid = service.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    stream = service.open()
    stream.push(codes_of(0, 1))
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(EngineLost, match="hangs"):
            await anext(stream)
    await service.close()
    assert not alive(pid)
    assert len(deaths) == 1


async def test_invalid_checkpoint_is_named_and_leaves_no_process(tmp_path: Path) -> None:
    service = CodecService(tmp_path, slots=1)
    with pytest.raises(EngineError, match=r"config\.json"):
        await service.start()
    assert service.pid is None


@pytest.mark.parametrize(("left_context", "job_frames"), [(0, 256), (3, 64), (72, 16)])
async def test_gpu_overlap_jobs_shrink_with_the_context_decoded_again(left_context: int, job_frames: int) -> None:
    service = CodecService(DEMO, slots=256, device="cuda", codec_mode="overlap", left_context=left_context)
    assert service.max_job_frames == job_frames


async def test_gpu_overlap_with_too_much_context_is_refused() -> None:
    with pytest.raises(ValueError, match="left_context must be at most 120 on a GPU, got 121"):
        CodecService(DEMO, slots=1, device="cuda", codec_mode="overlap", left_context=121)


async def test_overlap_with_exact_context_equals_a_single_pass(decoder: CodecDecoder) -> None:
    left_context = decoder.config.exact_left_context
    service = CodecService(DEMO, slots=1, max_job_frames=4, codec_mode="overlap", left_context=left_context)
    await service.start()
    stream, codes = service.open(), codes_of(3, 7)
    # The engine's first frame would leave no codes behind.
    stream.offer_first_frame(lambda *_: pytest.fail("overlap decoding has no state of streams"))
    async with asyncio.timeout(DEADLINE_S):
        assert np.abs(await speak(stream, codes, at_once=3) - expected(decoder, codes)).max() < 1e-5
    await service.close()


async def test_start_timeout_leaves_no_process() -> None:
    service = CodecService(DEMO, slots=1, start_deadline_s=0.2, close_deadline_s=0.1)
    with pytest.raises(EngineError, match="not ready within"):
        await service.start()
    assert service.pid is None


GATEWAY = """
import asyncio, os, sys
from pathlib import Path
from voxgate.pipeline.codec.service import CodecService

async def main():
    service = CodecService(Path(sys.argv[1]), slots=1, max_job_frames=1)
    await service.start()
    print(service.pid, flush=True)
    os._exit(1)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
async def test_worker_does_not_outlive_the_gateway() -> None:
    gateway = await asyncio.create_subprocess_exec(sys.executable, "-c", GATEWAY, str(DEMO), stdout=PIPE)
    assert gateway.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        pid = int(await gateway.stdout.readline())
        await gateway.wait()
        await ended(pid)


async def life_of_a_service() -> None:
    service = CodecService(DEMO, slots=1, max_job_frames=1)
    await service.start()
    pid = service.pid
    assert pid is not None
    stream = service.open()
    stream.push(codes_of(0, 1))
    assert len(await anext(stream)) == 1920
    await service.close()
    await service.close()
    assert not alive(pid)
    with pytest.raises(EngineLost):
        await anext(stream)


@pytest.mark.asyncio(loop_scope="module")
async def test_service_runs_on_uvloop() -> None:
    await asyncio.to_thread(uvloop.run, life_of_a_service())


@pytest.mark.parametrize(("slots", "frames"), [(2, 64), (128, 64), (130, 256)])
async def test_gpu_batches_shrink_with_the_number_of_slots(slots: int, frames: int) -> None:
    service = CodecService(DEMO, slots=slots, device="cuda")
    assert service.max_job_frames == frames
