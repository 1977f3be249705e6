"""The decoder's update as a CUDA graph: thousands of small kernels, launched at once.

Without it the GPU waits for the processor, more so while the same processor makes the speech.
"""

from __future__ import annotations

import gc

import torch
from torch import Tensor

from .decoder_update import DecoderTraining
from .sizes import CODEBOOKS, FRAME_SAMPLES

_WARM_UPS = 4


class GraphedSteps:
    """`DecoderTraining.step` for windows of one shape. Learning rates must be nought while it is made."""

    def __init__(self, training: DecoderTraining, windows: int, frames: int, from_start: int) -> None:
        device = next(training.decoder.parameters()).device
        self._codes = torch.randint(0, 512, (windows, CODEBOOKS, frames), device=device)
        self._audio = torch.randn(windows, frames * FRAME_SAMPLES, device=device) * 0.1
        self._graphs: dict[bool, torch.cuda.CUDAGraph] = {}
        self._told: dict[bool, dict[str, Tensor]] = {}
        for judged in (False, True):
            # Libraries choose their kernels and compilers compile here, which cannot be recorded.
            aside = torch.cuda.Stream()
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                for _ in range(_WARM_UPS):
                    training.step(self._codes, self._audio, from_start, judged=judged)
            torch.cuda.current_stream().wait_stream(aside)
            torch.cuda.synchronize()
            gc.collect()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._told[judged] = training.step(self._codes, self._audio, from_start, judged=judged)
            self._graphs[judged] = graph

    def __call__(self, codes: Tensor, audio: Tensor, *, judged: bool) -> dict[str, Tensor]:
        """What the step told stays valid until the next call."""
        self._codes.copy_(codes)
        self._audio.copy_(audio)
        self._graphs[judged].replay()
        return self._told[judged]
