"""Times both code predictors on a CPU by batch size: `python -m voxgate.benchmarks.predictor CHECKPOINT`.

Times are CPU times on one thread, with sampling.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint, load_checkpoint
from voxgate.pipeline.talker.cpu.predictor import CpuCodePredictor
from voxgate.pipeline.talker.reference.predictor import CodePredictor, Predictor
from voxgate.pipeline.talker.reference.sampling import Candidates

ROWS = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class PredictorTiming:
    """Times of one frame of each of `rows` utterances: the 25th percentile of the runs."""

    rows: int
    compiled_ms: float
    torch_ms: float


@torch.inference_mode()
def bench_predictors(
    checkpoint: TalkerCheckpoint, rows: Iterable[int] = ROWS, *, top_k: int = 50, top_p: float = 1.0, rounds: int = 40
) -> list[PredictorTiming]:
    """Times both predictors with the weights of `checkpoint`. Sets the number of torch threads to one."""
    torch.set_num_threads(1)
    rows = tuple(rows)
    stored = load_file(checkpoint.folder / "model.safetensors")
    weights = {name: tensor.float() for name, tensor in stored.items()}
    first = weights["talker.model.codec_embedding.weight"]
    compiled, torch_based = (
        kind(weights, first, checkpoint.predictor, checkpoint.groups, max(rows))
        for kind in (CpuCodePredictor, CodePredictor)
    )
    timings = []
    for count in rows:
        spans = [_frame(predictor, checkpoint, count, top_k, top_p) for predictor in (compiled, torch_based)]
        compiled_ms, torch_ms = (_time_ms(span, rounds) for span in spans)
        timings.append(PredictorTiming(count, compiled_ms, torch_ms))
    return timings


def _frame(
    predictor: Predictor, checkpoint: TalkerCheckpoint, rows: int, top_k: int, top_p: float
) -> Callable[[], object]:
    hidden = torch.randn(rows, checkpoint.talker.hidden)
    first = torch.randint(checkpoint.codebook, (rows,))
    temperature = torch.full((rows,), 0.6)
    candidates = Candidates.of(temperature, torch.full((rows,), top_k), torch.full((rows,), top_p), checkpoint.codebook)
    noise = torch.rand(rows, checkpoint.groups - 1)
    return lambda: predictor(hidden, first, candidates, noise)


def _time_ms(run: Callable[[], object], rounds: int) -> float:
    spans = []
    for _ in range(rounds + 2):
        begin = time.process_time()
        run()
        spans.append(time.process_time() - begin)
    return 1000 * sorted(spans[2:])[rounds // 4]


def timing_table(timings: Sequence[PredictorTiming]) -> str:
    """The timings as a Markdown table, with the ratio of both."""
    lines = ["| rows | compiled ms | torch ms | ratio |", "|---|---|---|---|"]
    for timing in timings:
        ratio = timing.torch_ms / timing.compiled_ms
        lines.append(f"| {timing.rows} | {timing.compiled_ms:.2f} | {timing.torch_ms:.2f} | {ratio:.1f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m voxgate.benchmarks.predictor", description=__doc__)
    parser.add_argument("checkpoint", type=Path, help="folder of a checkpoint")
    parser.add_argument("--top-k", type=int, default=50, help="candidates per code; 0 for all")
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    checkpoint = load_checkpoint(options.checkpoint)
    timings = bench_predictors(checkpoint, top_k=options.top_k, top_p=options.top_p, rounds=options.rounds)
    print(timing_table(timings))


if __name__ == "__main__":
    main()
