"""Part `soak` of `voxgate bench gpu`: the persistent predictor beside a decoding codec, with every code compared.

The kernel's blocks wait for one another while the codec's kernels, of a higher priority, come and go. In an engine the
codec decodes each frame once; here it does so too, in batches of changing shapes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

SOAK_FRAMES, SOAK_S = 2_000_000, 205.0
"""The soak ends after so many frames or seconds."""
ROWS = (16, 32, 16, 9, 32, 24, 16, 17)
"""Rows of the launches, in turn; each has inputs of its own. Those that no variant of the kernel serves are left
out."""
LAUNCHES_IN_FLIGHT = 64
"""Launches between two waits for the device."""
REPORT_S = 10.0
CODEC_SHAPES = ((16, 1), (4, 8), (64, 1), (16, 4), (1, 8), (8, 8))
"""Streams and frames of the codec's batches, in turn."""


@dataclass(slots=True)
class SoakFigures:
    """`differing`: rows whose codes were not those of the first launch; `codec_frames`: decoded meanwhile.

    `mean_ms`, `slowest_ms`: of a launch, over LAUNCHES_IN_FLIGHT launches; `error`: what ended the soak early.
    """

    frames: int = 0
    launches: int = 0
    differing: int = 0
    codec_frames: int = 0
    seconds: float = 0.0
    mean_ms: float = 0.0
    slowest_ms: float = 0.0
    error: str | None = None


class FrameCredit:
    """Frames that were made and not decoded yet; thread-safe."""

    def __init__(self) -> None:
        self._frames, self._ended = 0, False
        self._changed = threading.Condition()

    def add(self, frames: int) -> None:
        with self._changed:
            self._frames += frames
            self._changed.notify()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()

    def take(self, frames: int) -> bool:
        """Waits until there are so many and takes them; False, at once, after `end`."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._frames >= frames)
            self._frames -= frames
            return not self._ended


def soak(
    launches: Sequence[Callable[[], Tensor]],
    wait: Callable[[], None],
    made: Callable[[int], None],
    report: Callable[[SoakFigures], None],
    *,
    frames: int = SOAK_FRAMES,
    seconds: float = SOAK_S,
) -> SoakFigures:
    """Calls `launches` in turn and compares the codes of each, int64 [rows, groups], with those of its first call.

    `wait` waits for the device; `made` gets the frames made since its last call. A RuntimeError, which is how PyTorch
    reports a kernel that trapped, ends the soak.
    """
    figures = SoakFigures()
    began_s = time.monotonic()
    try:
        expected = [launch().clone() for launch in launches]
        differing = expected[0].new_zeros(())
        wait()
        began_s = reported_s = checked_s = time.monotonic()
        while figures.frames < frames and figures.seconds < seconds:
            behind = 0
            for number in range(figures.launches, figures.launches + LAUNCHES_IN_FLIGHT):
                codes, first = launches[number % len(launches)](), expected[number % len(launches)]
                differing += (codes != first).any(1).sum()
                behind += len(codes)
            wait()
            now_s = time.monotonic()
            figures.launches += LAUNCHES_IN_FLIGHT
            figures.frames += behind
            figures.seconds = now_s - began_s
            figures.differing = int(differing)
            figures.mean_ms = 1000 * figures.seconds / figures.launches
            figures.slowest_ms = max(figures.slowest_ms, 1000 * (now_s - checked_s) / LAUNCHES_IN_FLIGHT)
            checked_s = now_s
            made(behind)
            if now_s - reported_s >= REPORT_S:
                reported_s = now_s
                report(figures)
    except RuntimeError as error:
        figures.error = str(error).partition("\n")[0]
        figures.seconds = time.monotonic() - began_s
    return figures


def soak_figures(folder: Path, report: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Figures of a soak with the checkpoint in `folder`, its codec in a thread beside it, as in the engine."""
    import torch
    from voxgate.pipeline.codec.gpu_worker import GpuBatchDecoder, load_gpu_decoder
    from voxgate.pipeline.cuda.graphs import CapturedGraph, new_event, new_stream
    from voxgate.pipeline.ipc.codec_wire import Job

    from .predictor import LoadedPredictor

    rows = max(streams for streams, _ in CODEC_SHAPES)
    with torch.inference_mode():
        decoder = load_gpu_decoder(folder / "speech_tokenizer", rows, torch.device("cuda"))
        codec = GpuBatchDecoder(decoder, rows, max(streams * frames for streams, frames in CODEC_SHAPES))
        loaded = LoadedPredictor.load(folder, max(ROWS))
        counts = [rows for rows in ROWS if loaded.predictor.is_persistent(rows)]
        if not counts:
            return {"error": "the persistent predictor is not in use here"}
        graphs = [CapturedGraph.capture(loaded.frames(count, seed), None) for seed, count in enumerate(counts)]
    credit, decoded, stream, event = FrameCredit(), SoakFigures(), new_stream(), new_event()
    chance = torch.Generator().manual_seed(0)

    def decode() -> None:
        with torch.inference_mode():
            for number in range(1 << 62):
                streams, frames = CODEC_SHAPES[number % len(CODEC_SHAPES)]
                if not credit.take(streams * frames):
                    return
                codes = torch.randint(decoder.codebook_size, (streams, frames, decoder.codebooks), generator=chance)
                codec.decode(Job(number, tuple(range(streams)), (False,) * streams, codes.numpy()))
                decoded.codec_frames += streams * frames

    def launch(graph: CapturedGraph[None, Tensor]) -> Tensor:
        # Codes that a launch did not write must not pass for those of the one before.
        graph.outputs.fill_(-1)
        return graph.replay()

    def wait() -> None:
        event.record()
        event.synchronize()

    def show(figures: SoakFigures) -> None:
        figures.codec_frames = decoded.codec_frames
        report(asdict(figures))

    worker = threading.Thread(target=decode, daemon=True)
    worker.start()
    with torch.inference_mode(), torch.cuda.stream(stream):
        figures = soak([lambda graph=graph: launch(graph) for graph in graphs], wait, credit.add, show)  # type: ignore[misc]  # the default is the type
    credit.end()
    worker.join(10.0)
    figures.codec_frames = decoded.codec_frames
    return asdict(figures)
