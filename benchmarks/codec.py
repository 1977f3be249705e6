"""How long a frame takes by the shape of the batch: `python -m voxgate.benchmarks.codec CHECKPOINT`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import torch
from voxgate.codecs.neural.config import CodecMode
from voxgate.codecs.neural.streaming import load_slot_decoder
from voxgate.codecs.pcm import FRAME_MS

SIZES = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class CodecTiming:
    """One batch shape: `frames` of each of `rows` streams. Times are of the fastest quarter's slowest run."""

    rows: int
    frames: int
    batch_ms: float

    @property
    def frame_ms(self) -> float:
        return self.batch_ms / (self.rows * self.frames)

    @property
    def streams(self) -> float:
        """Streams that could be kept playing if the processor did nothing else."""
        return FRAME_MS / self.frame_ms


def bench_codec(
    checkpoint_dir: Path,
    shapes: Iterable[tuple[int, int]] = tuple(product((1, 4, 8), SIZES)),
    *,
    codec_mode: CodecMode = "stateful",
    left_context: int = 25,
    threads: int = 1,
    rounds: int = 20,
) -> list[CodecTiming]:
    """Time every (rows, frames) in `shapes`, of streams in full swing; sets this process's torch threads.

    Raises CodecFormatError.
    """
    torch.set_num_threads(threads)
    shapes = list(shapes)
    decoder = load_slot_decoder(checkpoint_dir, max(rows for rows, _ in shapes), codec_mode, left_context)
    timings = []
    for rows, frames in shapes:
        slots, old = torch.arange(rows), torch.zeros(rows, dtype=torch.int64)
        # Fills the left context, so that every run has all of it.
        begin_codes = torch.zeros(rows, max(left_context, 1), decoder.codebooks, dtype=torch.int64)
        decoder.decode(begin_codes, slots, torch.ones_like(old))
        codes = torch.randint(0, decoder.codebook_size, (rows, frames, decoder.codebooks))
        spans = []
        for _ in range(rounds + 2):
            begin = time.perf_counter()
            decoder.decode(codes, slots, old)
            spans.append(time.perf_counter() - begin)
        timings.append(CodecTiming(rows, frames, 1000 * sorted(spans[2:])[rounds // 4]))
    return timings


def timing_table(timings: Sequence[CodecTiming]) -> str:
    """The timings as a Markdown table, with each shape's cost a frame as a ratio to the first one's."""
    lines = [
        "| streams | frames | ms a batch | ms a frame | ratio | real-time streams |",
        "|---|---|---|---|---|---|",
    ]
    for timing in timings:
        ratio = timing.frame_ms / timings[0].frame_ms
        cells = (
            str(timing.rows),
            str(timing.frames),
            f"{timing.batch_ms:.1f}",
            f"{timing.frame_ms:.2f}",
            f"{ratio:.2f}",
            f"{timing.streams:.1f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m voxgate.benchmarks.codec", description=__doc__)
    parser.add_argument("checkpoint", type=Path, help="a voice's speech_tokenizer folder")
    parser.add_argument("--codec-mode", choices=("stateful", "overlap"), default="stateful")
    parser.add_argument("--left-context", type=int, default=25)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    timings = bench_codec(
        options.checkpoint,
        codec_mode=options.codec_mode,
        left_context=options.left_context,
        threads=options.threads,
        rounds=options.rounds,
    )
    print(timing_table(timings))


if __name__ == "__main__":
    main()
