"""Records on their way from the device to the gateway. Needs a GPU."""

from __future__ import annotations

import queue
import threading
import time

import numpy as np
import pytest
import torch
from voxgate.pipeline.ipc.records import PADDING_ROW

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")

WIDTH = 8


def records_of(*slots: int) -> torch.Tensor:
    records = torch.zeros(len(slots), WIDTH, dtype=torch.int32, device="cuda")
    records[:, 0] = torch.tensor(slots, dtype=torch.int32)
    return records


def test_records_are_sent_without_padding_rows() -> None:
    from voxgate.pipeline.talker.cuda.frame_sender import FrameSender

    sent, arrived = [], threading.Event()

    def send(message: bytes) -> None:
        sent.append(message)
        arrived.set()

    records, completed, began_s = records_of(3, PADDING_ROW, 5), np.zeros(2), time.monotonic()
    sender = FrameSender(4, WIDTH, send, completed=completed)
    sender.begin_step(7)
    sender.put(records)
    assert arrived.wait(60)
    assert completed[0] == 7
    assert began_s < completed[1] <= time.monotonic()
    assert sent == [records[[0, 2]].cpu().numpy().tobytes()]


def test_failed_send_ends_the_process() -> None:
    from voxgate.pipeline.talker.cuda.frame_sender import FrameSender

    def send(_: bytes) -> None:
        raise ConnectionRefusedError("gateway is gone")

    ended: queue.Queue[int] = queue.Queue()
    FrameSender(4, WIDTH, send, end_process=ended.put).put(records_of(3))
    assert ended.get(timeout=60) == 1
