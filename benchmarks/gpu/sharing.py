"""Part `sharing` of `voxgate bench gpu`: ways in which the talker's steps and the codec can share the device.

A round is a step of all rows, the graphs of its backbone and its code predictor as in an engine, and the codec's graphs
for as many frames, in chunks of eight as behind a long lead. Inputs, head and first draw are left out: some 0.3 ms a
step. Steps follow each other, and the codec decodes the frames of a step that is over.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from voxgate.codecs.pcm import FRAME_MS

from .report import AUDIO_PER_S

if TYPE_CHECKING:
    import torch
    from voxgate.codecs.neural.cuda.decoder import GpuDecoder
    from voxgate.pipeline.cuda.graphs import CapturedGraph

ROWS = (64, 128, 256, 512)
CHUNK_FRAMES, BATCH_FRAMES, SMALL_BATCH_FRAMES = 8, 256, 64
"""Frames of a stream in a batch, of a batch as it is served, and of one that holds the device for a shorter time."""
WARM_UP_ROUNDS, ROUNDS, REPEATS = 2, 10, 3

Run = Callable[[object], object]
"""A computation, of an argument that it ignores; it holds the tensors that it reads."""
Mark = TypeVar("Mark")
Work = TypeVar("Work", contravariant=True)


class Lane(Protocol[Work, Mark]):
    """A stream of the device."""

    def launch(self, work: Work) -> None:
        """Runs `work` behind everything launched before."""

    def mark(self) -> Mark:
        """The point behind everything launched so far."""

    def wait(self, mark: Mark) -> None:
        """Lets everything launched from now on wait for a point of any lane."""


class Turn(Enum):
    """What the codec's batches of a round wait for."""

    NONE = "nothing"
    STEP = "the step; the next step waits for them"
    BACKBONE = "the step's backbone; the next step waits for them"


@dataclass(frozen=True, slots=True)
class Way:
    """What is launched, with which priorities of the streams, and in which order."""

    name: str
    turn: Turn = Turn.NONE
    talker_priority: int = 0
    codec_priority: int = 0
    batch_frames: int = BATCH_FRAMES
    steps: bool = True
    batches: bool = True


WAYS = (
    Way("step alone", batches=False),
    Way("codec alone", steps=False),
    Way("codec first", codec_priority=-1),
    Way("equal"),
    Way("talker first", talker_priority=-1),
    Way("codec first, small batches", codec_priority=-1, batch_frames=SMALL_BATCH_FRAMES),
    Way("talker first, small batches", talker_priority=-1, batch_frames=SMALL_BATCH_FRAMES),
    Way("in turns", Turn.STEP),
    Way("in turns with the backbone", Turn.BACKBONE),
    Way("in turns with the backbone, talker first", Turn.BACKBONE, talker_priority=-1),
)


def batch_shapes(rows: int, batch_frames: int) -> list[tuple[int, int]]:
    """Streams and frames of the batches of a round, for one frame of each of `rows`, a power of two."""
    frames = min(rows, batch_frames)
    return [(frames // CHUNK_FRAMES, CHUNK_FRAMES)] * (rows // frames)


def launch_rounds(
    talker: Lane[Work, Mark],
    codec: Lane[Work, Mark],
    step: Sequence[Work],
    batches: Sequence[Work],
    turn: Turn,
    rounds: int,
) -> None:
    """Launches rounds; `talker` ends behind all of them. `step`: backbone and predictor, or nothing.

    Without turns, the codec decodes the frames of the previous step beside the one under way, and a step waits for the
    codec's round before the last, so that neither gets far ahead of the other.
    """
    decoded: list[Mark] = []
    step_end: Mark | None = None
    slack = 2 if turn is Turn.NONE else 1
    for _ in range(rounds):
        if len(decoded) >= slack:
            talker.wait(decoded[-slack])
        awaited = step_end
        for number, part in enumerate(step):
            talker.launch(part)
            step_end = talker.mark()
            if turn is Turn.STEP or (turn is Turn.BACKBONE and number == 0):
                awaited = step_end
        if awaited is not None:
            codec.wait(awaited)
        for batch in batches:
            codec.launch(batch)
        decoded.append(codec.mark())
    talker.wait(decoded[-1])


class StreamLane:
    """A stream on which graphs are replayed."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream

    def launch(self, work: CapturedGraph[None, object]) -> None:
        import torch

        with torch.cuda.stream(self._stream):
            work.replay()

    def mark(self, *, timing: bool = False) -> torch.cuda.Event:
        from voxgate.pipeline.cuda.graphs import new_event

        event = new_event(timing=timing)
        event.record(self._stream)
        return event

    def wait(self, mark: torch.cuda.Event) -> None:
        self._stream.wait_event(mark)


def timed_round_ms(launch: Callable[[int], None], talker: StreamLane, codec: StreamLane) -> float:
    """Median time of a round that `launch` launches, of which both lanes begin at once."""
    launch(WARM_UP_ROUNDS)
    times = []
    for _ in range(REPEATS):
        begin = talker.mark(timing=True)
        codec.wait(begin)
        launch(ROUNDS)
        end = talker.mark(timing=True)
        end.synchronize()
        times.append(float(begin.elapsed_time(end)) / ROUNDS)
    return statistics.median(times)


@dataclass(slots=True)
class SharedDevice:
    """The talker's and the codec's graphs by stream and size, captured when they are asked for.

    `backbone`, `predictor`: give what computes a number of rows.
    """

    backbone: Callable[[int], Run]
    predictor: Callable[[int], Run]
    decoder: GpuDecoder
    _graphs: dict[tuple[object, ...], CapturedGraph[None, object]] = field(default_factory=dict)
    _streams: dict[tuple[str, int], torch.cuda.Stream] = field(default_factory=dict)
    _pools: dict[int, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path) -> SharedDevice:
        """Talker layers with random weights, and predictor and codec of the checkpoint in `folder`."""
        import torch
        from voxgate.pipeline.checkpoint.checkpoint import load_checkpoint
        from voxgate.pipeline.codec.gpu_worker import load_gpu_decoder

        from .parts import PAST, random_layers
        from .predictor import LoadedPredictor

        layers = random_layers(load_checkpoint(folder).talker, max(ROWS), PAST, torch.device("cuda"), torch.bfloat16)
        # The persistent predictor is for fewer rows.
        predictor = LoadedPredictor.load(folder, max(ROWS), persistent_predictor=False)
        streams = BATCH_FRAMES // CHUNK_FRAMES
        decoder = load_gpu_decoder(folder / "speech_tokenizer", streams, torch.device("cuda"))
        return cls(lambda rows: lambda _: layers(rows), predictor.frames, decoder)

    def round_ms(self, way: Way, rows: int) -> float:
        """Time of a round. Raises EngineError or RuntimeError where the GPU cannot do it."""
        talker, codec = self._stream("talker", way.talker_priority), self._stream("codec", way.codec_priority)
        parts = (self.backbone, self.predictor) if way.steps else ()
        step = [self._graph(talker, ("step", number, rows), partial(make, rows)) for number, make in enumerate(parts)]
        shapes = batch_shapes(rows, way.batch_frames) if way.batches else []
        batches = [self._graph(codec, shape, partial(_random_batch, self.decoder, *shape)) for shape in shapes]
        lanes = StreamLane(talker), StreamLane(codec)
        return timed_round_ms(lambda rounds: launch_rounds(*lanes, step, batches, way.turn, rounds), *lanes)

    def _graph(
        self, stream: torch.cuda.Stream, name: tuple[object, ...], make: Callable[[], Run]
    ) -> CapturedGraph[None, object]:
        from voxgate.pipeline.cuda.graphs import CapturedGraph, new_memory_pool

        key = (stream.cuda_stream, *name)
        if key not in self._graphs:
            pool = self._pools.setdefault(stream.cuda_stream, new_memory_pool())
            self._graphs[key] = CapturedGraph.capture(make(), None, stream=stream, pool=pool)
        return self._graphs[key]

    def _stream(self, user: str, priority: int) -> torch.cuda.Stream:
        from voxgate.pipeline.cuda.graphs import new_stream

        if (user, priority) not in self._streams:
            self._streams[user, priority] = new_stream(priority=priority)
        return self._streams[user, priority]


def _random_batch(decoder: GpuDecoder, streams: int, frames: int) -> Run:
    """Decodes a random batch."""
    import torch

    codes = torch.randint(decoder.codebook_size, (streams, frames, decoder.codebooks), device=decoder.device)
    slots = torch.arange(streams, device=decoder.device)
    fresh = torch.zeros_like(slots)
    return lambda _: decoder.decode(codes, slots, fresh)


def sharing_figures(
    folder: Path, report: Callable[[dict[str, Any]], None], ways: Iterable[Way] = WAYS
) -> dict[str, Any]:
    """By rows, ms of a round in each way, and audio seconds a second; None where the GPU cannot do it.

    `report` gets all figures after each way.
    """
    import torch
    from voxgate.pipeline.errors import EngineError

    figures: dict[str, Any] = {}
    with torch.inference_mode():
        device = SharedDevice.load(folder)
        for way in ways:
            for rows in ROWS:
                try:
                    ms: float | None = round(device.round_ms(way, rows), 3)
                except (EngineError, RuntimeError) as error:
                    print(f"sharing: {way.name}: {error}", file=sys.stderr)
                    ms = None
                figures.setdefault(f"{rows} rows", {})[way.name] = ms
                if way.steps and way.batches:
                    audio = None if ms is None else round(rows * FRAME_MS / ms)
                    figures.setdefault(f"{rows} rows, {AUDIO_PER_S}", {})[way.name] = audio
            report(figures)
    return figures
