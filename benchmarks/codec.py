"""Times the codec's decoder on a CPU by batch shape: `python -m voxgate.benchmarks.codec CHECKPOINT`."""

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
    """Timing of a batch of `frames` frames of each of `rows` streams: the 25th percentile of its runs.

    Of CPU time on one thread, which other programs disturb little; on several threads, of time.
    """

    rows: int
    frames: int
    batch_ms: float

    @property
    def frame_ms(self) -> float:
        return self.batch_ms / (self.rows * self.frames)

    @property
    def streams(self) -> float:
        """Streams that could be decoded in real time if the processor did nothing else."""
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
    """Times every (rows, frames) in `shapes`, with full left context. Sets the number of torch threads to one.

    Raises CodecFormatError.
    """
    torch.set_num_threads(1)
    shapes = list(shapes)
    clock = time.process_time if threads == 1 else time.perf_counter
    decoder = load_slot_decoder(checkpoint_dir, max(rows for rows, _ in shapes), codec_mode, left_context, threads)
    timings = []
    for rows, frames in shapes:
        slots, not_fresh = torch.arange(rows), torch.zeros(rows, dtype=torch.int64)
        # Fills the left context.
        context = torch.zeros(rows, max(left_context, 1), decoder.codebooks, dtype=torch.int64)
        decoder.decode(context, slots, torch.ones_like(not_fresh))
        codes = torch.randint(0, decoder.codebook_size, (rows, frames, decoder.codebooks))
        spans = []
        for _ in range(rounds + 2):
            begin = clock()
            decoder.decode(codes, slots, not_fresh)
            spans.append(clock() - begin)
        timings.append(CodecTiming(rows, frames, 1000 * sorted(spans[2:])[rounds // 4]))
    return timings


def timing_table(timings: Sequence[CodecTiming]) -> str:
    """The timings as a Markdown table; the ratio compares the time per frame with that of the first shape."""
    lines = [
        "| streams | frames | ms per batch | ms per frame | ratio | real-time streams |",
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
    parser.add_argument("checkpoint", type=Path, help="the speech_tokenizer folder of a checkpoint")
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
