"""The codec worker's graphs on a GPU, against a single pass on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from voxgate.codecs.neural.cuda.decoder import GpuDecoder
from voxgate.codecs.neural.decoder import CodecDecoder
from voxgate.codecs.neural.weights import random_tensors
from voxgate.pipeline.codec.gpu_worker import GpuBatchDecoder
from voxgate.pipeline.ipc.codec_wire import Job

from .test_codec_decoder import CONFIG, SLOTS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


@torch.inference_mode()
def test_jobs_of_any_size_equal_a_single_pass() -> None:
    """One, two and three streams; the batch of three runs in the graph for four, with a padding row."""
    loaded = CodecDecoder(CONFIG, random_tensors(CONFIG))
    codes = torch.randint(32, (3, 7, 4), generator=torch.Generator().manual_seed(1))
    worker = GpuBatchDecoder(GpuDecoder(loaded, SLOTS, torch.float32, torch.device("cuda")), 4, 16)
    parts: list[list[np.ndarray]] = [[], [], []]
    at = 0
    for serial, frames in enumerate((1, 2, 4)):
        for streams in ((0, 1, 2),) if frames == 2 else ((1,), (0, 2)):
            chunk = codes[list(streams), at : at + frames].numpy().astype(np.int16)
            slots = tuple(4 - stream for stream in streams)
            pcm = worker.decode(Job(serial, slots, (at == 0,) * len(streams), chunk))
            for stream, row in zip(streams, pcm, strict=True):
                parts[stream].append(row.copy())
        at += frames
    pcm_of_streams = np.stack([np.concatenate(parts) for parts in parts])
    assert np.allclose(pcm_of_streams, loaded.decode_all(codes).numpy(), atol=1e-5)
