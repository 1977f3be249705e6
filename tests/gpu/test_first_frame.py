"""First frames found among a step's records; on a GPU also their PCM, against a single pass on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from voxgate.codecs.neural.cuda.decoder import GpuDecoder
from voxgate.codecs.neural.decoder import CodecDecoder
from voxgate.codecs.neural.weights import random_tensors
from voxgate.pipeline.ipc.codec_wire import Job
from voxgate.pipeline.ipc.records import HEADER, PADDING_ROW, RecordFlag, unpack_pcm

from .test_codec_decoder import CONFIG, SLOTS

GROUPS = 4


def records_of(*heads: tuple[int, int, int, int]) -> torch.Tensor:
    """Records with these slots, epochs, frames and flags, each with its own codes."""
    records = torch.zeros(len(heads), HEADER + GROUPS, dtype=torch.int32)
    for row, head in enumerate(heads):
        records[row, :HEADER] = torch.tensor(head)
        records[row, HEADER:] = torch.arange(GROUPS) + 5 * row
    return records


def test_first_frames_are_found_in_any_row(device: torch.device) -> None:
    from voxgate.pipeline.talker.cuda.step_kernels import find_first_frames

    records = records_of(
        (9, 1, 3, 0), (PADDING_ROW, 2, 0, 0), (5, 3, 0, 0), (7, 4, 0, int(RecordFlag.END)), (2, 5, 0, 0)
    )
    # The third slot is past its first frame, the fourth ended without a frame, the fifth has no record.
    wanted = torch.tensor([[2, 5, 9, 7, 8, -2], [11, 12, 13, 14, 15, 0], [1, 0, 0, 1, 0, 0]])
    inputs = torch.full((2 + GROUPS, 6), 77)
    on_device = [each.to(device) for each in (records, wanted, inputs)]
    find_first_frames[(5,)](*on_device, len(records), 6, 99, GROUPS=GROUPS, HEADER=HEADER, SPAN=8)
    slots, fresh, *codes = on_device[2].cpu().tolist()
    assert slots == [11, 12, 99, 99, 99, 77]
    assert fresh == [1, 0, 1, 1, 1, 77]
    assert [row[:3] for row in codes] == [[20 + n, 10 + n, 0] for n in range(GROUPS)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@torch.inference_mode()
def test_streams_started_by_the_talker_continue_in_the_codec_worker() -> None:
    from voxgate.pipeline.codec.gpu_worker import GpuBatchDecoder
    from voxgate.pipeline.talker.cuda.first_frame import FirstFrameDecoder

    loaded = CodecDecoder(CONFIG, random_tensors(CONFIG))
    worker = GpuBatchDecoder(GpuDecoder(loaded, SLOTS, torch.float32, torch.device("cuda")), 4, 16)
    first_frames = FirstFrameDecoder(worker, 8, GROUPS)
    for repetition in range(3):
        codes = torch.randint(32, (2, 2, GROUPS), generator=torch.Generator().manual_seed(repetition))
        records = records_of((6, 21, 0, 0), (3, 22, 4, 0), (2, 23, 0, 0))
        records[[0, 2], HEADER:] = codes[:, 0].int()
        first_frames.expect([(2, 0, True), (6, 3, True), (1, 4, True)])
        pending = first_frames.launch(records.cuda())
        assert pending is not None
        on_host = records.numpy().copy()
        pending.mark(on_host)
        assert on_host[:, 3].tolist() == [RecordFlag.DECODED, 0, RecordFlag.DECODED]
        decoded = {}
        for message in pending.wait():
            slot, epoch, pcm = unpack_pcm(message) or (0, 0, None)
            decoded[slot, epoch] = pcm
        rest = worker.decode(Job(1, (3, 0), (False, False), codes[:, 1:].numpy().astype(np.int16)))
        pcm_of_streams = np.stack(
            [np.concatenate([decoded[key], row]) for key, row in zip(((6, 21), (2, 23)), rest, strict=True)]
        )
        assert np.allclose(pcm_of_streams, loaded.decode_all(codes).numpy(), atol=1e-5)
        assert first_frames.launch(records.cuda()) is None, "no first frame is expected"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@torch.inference_mode()
def test_first_frame_behind_a_kept_state_continues_it() -> None:
    """A reference is decoded and kept by the worker; streams in other slots begin behind it, beside a fresh one."""
    from voxgate.pipeline.codec.gpu_worker import GpuBatchDecoder
    from voxgate.pipeline.talker.cuda.first_frame import FirstFrameDecoder

    loaded = CodecDecoder(CONFIG, random_tensors(CONFIG))
    worker = GpuBatchDecoder(GpuDecoder(loaded, SLOTS, torch.float32, torch.device("cuda")), 4, 16)
    first_frames = FirstFrameDecoder(worker, 8, GROUPS)
    codes = torch.randint(32, (2, 8, GROUPS), generator=torch.Generator().manual_seed(1))
    key, whole = bytes(16), loaded.decode_all(codes).numpy()
    assert not worker.restore(1, key)
    worker.decode(Job(1, (0,), (True,), codes[:1, :4].numpy().astype(np.int16)))
    worker.keep(0, key)
    worker.decode(Job(2, (0,), (False,), codes[1:, :4].numpy().astype(np.int16)))
    for slot in (1, 2):
        assert worker.restore(slot, key)
        records = records_of((6, 21, 0, 0), (2, 22, 0, 0))
        records[0, HEADER:], records[1, HEADER:] = codes[0, 4].int(), codes[1, 0].int()
        first_frames.expect([(6, slot, False), (2, 3, True)])
        pending = first_frames.launch(records.cuda())
        assert pending is not None
        pending.mark(records.numpy())
        decoded = {message[:2]: message[2] for message in map(unpack_pcm, pending.wait()) if message is not None}
        size = loaded.frame_samples
        assert np.allclose(decoded[6, 21], whole[0, 4 * size : 5 * size], atol=1e-5)
        assert np.allclose(decoded[2, 22], whole[1, :size], atol=1e-5)
        rest = worker.decode(Job(3, (slot,), (False,), codes[:1, 5:7].numpy().astype(np.int16)))
        assert np.allclose(rest[0], whole[0, 5 * size : 7 * size], atol=1e-5)
