"""Left-context overlap on the GPU, against the same strategy on the CPU and, captured, against a single pass."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from voxgate.codecs.neural.cuda.decoder import GpuDecoder
from voxgate.codecs.neural.decoder import CodecDecoder
from voxgate.codecs.neural.streaming import OverlapDecoder
from voxgate.codecs.neural.weights import random_tensors
from voxgate.pipeline.codec.gpu_worker import GpuBatchDecoder
from voxgate.pipeline.ipc.codec_wire import Job

from .test_codec_decoder import CONFIG

SLOTS = 3


@pytest.mark.parametrize("left_context", [0, 3, 12])
def test_overlap_equals_that_on_the_cpu(device: torch.device, left_context: int) -> None:
    """Two streams of different age in slots 2 and 0, and a padding row."""
    loaded = CodecDecoder(CONFIG, random_tensors(CONFIG))
    on_cpu = OverlapDecoder(loaded, SLOTS, left_context)
    on_gpu = OverlapDecoder(GpuDecoder(loaded, 0, torch.float32, device), SLOTS, left_context, device)
    codes = torch.randint(32, (3, 16, 4), generator=torch.Generator().manual_seed(1))
    at = 0
    for frames, fresh in ((1, [1, 1, 1]), (8, [0, 0, 1]), (4, [0, 1, 1]), (2, [0, 0, 1])):
        chunk = codes[:, at : at + frames]
        slots, begins = torch.tensor([2, 0, SLOTS]), torch.tensor(fresh)
        expected = on_cpu.decode(chunk, slots, begins)
        pcm = on_gpu.decode(chunk.to(device), slots.to(device), begins.to(device)).cpu()
        assert torch.allclose(pcm[:2], expected[:2], atol=1e-5)
        at += frames


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@torch.inference_mode()
def test_captured_overlap_with_exact_context_equals_a_single_pass() -> None:
    loaded, device = CodecDecoder(CONFIG, random_tensors(CONFIG)), torch.device("cuda")
    backend = GpuDecoder(loaded, 0, torch.float32, device)
    worker = GpuBatchDecoder(OverlapDecoder(backend, SLOTS, CONFIG.exact_left_context, device), 4, 16)
    codes = torch.randint(32, (3, 15, 4), generator=torch.Generator().manual_seed(1))
    runs, at = [], 0
    for serial, frames in enumerate((1, 2, 4, 4, 4)):
        chunk = codes[:, at : at + frames].numpy().astype(np.int16)
        runs.append(worker.decode(Job(serial, (1, 2, 0), (at == 0,) * 3, chunk)).copy())
        at += frames
    assert np.allclose(np.concatenate(runs, 1), loaded.decode_all(codes).numpy(), atol=1e-5)
