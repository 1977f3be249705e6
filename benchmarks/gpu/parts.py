"""How long each part of a step takes on this GPU by size of batch: layers, predictor, codec, and the whole engine.

`python -m voxgate.benchmarks.gpu.parts CHECKPOINT PART` prints JSON, of which the last line counts; a process for each part,
which leaves no memory taken.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from voxgate.pipeline.checkpoint import TransformerSize

BATCHES = (1, 8, 12, 16, 32, 64, 128, 256)
CODEC_SHAPES = (*((rows, 1) for rows in BATCHES), (1, 4), (16, 4), (16, 8), (32, 8))
LAYER_BATCHES = (1, 8, 12, 32, 64, 96, 128, 192, 256, 512)
PAST, PAGE = 120, 16
"""Positions of each session's past, and of a page of the cache, when layers are timed."""
ROUNDS = 30
RATES = (10, 20, 40, 60)
"""Utterances a second, for the first PCM."""


def predictor_ms(folder: Path) -> dict[str, float]:
    """A frame's codes for so many rows, without head and first draw, as one graph and as serving makes them; median."""
    import torch
    from safetensors import safe_open
    from voxgate.pipeline.checkpoint import load_checkpoint
    from voxgate.pipeline.talker.cuda.predictor import GpuCodePredictor
    from voxgate.pipeline.talker.reference.sampling import Candidates
    from voxgate.pipeline.talker.vllm.config import GpuOptions

    checkpoint = load_checkpoint(folder)
    with safe_open(folder / "model.safetensors", "pt", "cuda") as stored, torch.inference_mode():
        names = [name for name in stored.keys() if "code_predictor" in name]  # noqa: SIM118  # no mapping
        weights = {name: stored.get_tensor(name) for name in names}
        first = stored.get_tensor("talker.model.codec_embedding.weight")
        predictor = GpuCodePredictor(
            weights,
            first,
            checkpoint.predictor,
            checkpoint.groups,
            max(BATCHES),
            persistent_predictor=GpuOptions().persistent_predictor,
        )
        times = {}
        for rows in BATCHES:
            hidden = torch.randn(rows, checkpoint.talker.hidden, device="cuda", dtype=first.dtype)
            codes = torch.randint(checkpoint.codebook, (rows,), device="cuda")
            noise = torch.rand(rows, checkpoint.groups - 1, device="cuda")
            heat = torch.full((rows,), 0.9, device="cuda")
            limit = torch.full((rows,), 50, device="cuda")
            candidates = Candidates.on_device(heat, limit, torch.ones(rows, device="cuda"), checkpoint.codebook)
            times[str(rows)] = _graph_ms(lambda: predictor(hidden, codes, candidates, noise))  # noqa: B023  # run at once
    return times


def layers_ms(folder: Path) -> dict[str, float]:
    """The talker's layers, ours, with random weights, for so many sessions PAST positions on, as one graph; median."""
    import torch
    from voxgate.pipeline.checkpoint import load_checkpoint

    with torch.inference_mode():
        run = random_layers(load_checkpoint(folder).talker, max(LAYER_BATCHES), PAST, torch.device("cuda"))
        return {str(rows): _graph_ms(partial(run, rows)) for rows in LAYER_BATCHES}


def random_layers(size: TransformerSize, most: int, past: int, device: torch.device) -> Callable[[int], Tensor]:
    """A step of up to `most` sessions, each `past` positions on, through all layers as served, in bfloat16 on a GPU."""
    import torch
    from voxgate.pipeline.talker.cuda.backbone import backbone_for
    from voxgate.pipeline.talker.cuda.backbone_kernels import BatchRows, LayerWeights
    from voxgate.pipeline.talker.reference.predictor_weights import rotary

    # Triton's interpreter cannot multiply bfloat16.
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float16

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device, dtype=dtype).mul_(shape[-1] ** -0.5)

    queries, keys, ones = size.heads * size.head_dim, size.kv_heads * size.head_dim, random(size.head_dim) * 0 + 1
    layers = [
        LayerWeights(
            random(queries + 2 * keys, size.hidden),
            random(size.hidden, queries),
            random(2 * size.intermediate, size.hidden),
            random(size.hidden, size.intermediate),
            ones,
            ones,
        )
        for _ in range(size.layers)
    ]
    angles = torch.cat([part.chunk(2, -1)[0] for part in rotary(torch.arange(past + 1, device=device), size)], -1)
    pages = -(-(past + 1) // PAGE)
    caches = [random(most * pages, PAGE, size.kv_heads, 2 * size.head_dim).transpose(1, 2) for _ in layers]
    owned = torch.randperm(most * pages, device=device).int().view(most, pages)
    gpu = backbone_for(layers, random(size.hidden) * 0 + 1, angles, size, most, streamed_layers=True)
    embedded = random(most, size.hidden)

    def run(rows: int) -> Tensor:
        numbers = torch.arange(rows, device=device)
        places = owned[:rows, past // PAGE].long() * PAGE + past % PAGE
        starts = torch.arange(rows + 1, dtype=torch.int32, device=device)
        return gpu(embedded[:rows], BatchRows(numbers, numbers * 0 + past, places, owned[:rows], starts), caches)

    return run


def codec_ms(folder: Path) -> dict[str, float]:
    """A batch of (streams, frames) as one graph, in the precision that serving would choose; median."""
    import torch
    from voxgate.pipeline.codec.gpu_worker import load_gpu_decoder

    decoder = load_gpu_decoder(folder / "speech_tokenizer", max(rows for rows, _ in CODEC_SHAPES), torch.device("cuda"))
    times = {}
    for rows, frames in CODEC_SHAPES:
        codes = torch.randint(decoder.codebook_size, (rows, frames, decoder.codebooks), device="cuda")
        slots, fresh = torch.arange(rows, device="cuda"), torch.zeros(rows, dtype=torch.int64, device="cuda")
        times[f"{rows}x{frames}"] = _graph_ms(lambda: decoder.decode(codes, slots, fresh))  # noqa: B023  # run at once
    return times


def _graph_ms(run: Callable[[], object]) -> float:
    from voxgate.pipeline.cuda.graphs import CapturedGraph, new_event

    graph = CapturedGraph.capture(lambda _: run(), None)
    spans = []
    for _ in range(ROUNDS):
        begin, end = new_event(timing=True), new_event(timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        spans.append(float(begin.elapsed_time(end)))
    return round(statistics.median(spans[5:]), 3)


def engine_figures(folder: Path, *, voxgate_kernels: bool = True) -> None:
    """Everything that needs an engine (`gpu_engine.py`)."""
    import uvloop

    from . import engine as gpu_engine

    uvloop.run(gpu_engine.engine_figures(folder, RATES, _print, voxgate_kernels=voxgate_kernels))


def first_figures(folder: Path) -> None:
    """The way to the first PCM, stage by stage (`gpu_first.py`)."""
    import uvloop

    from . import first_stages as gpu_first

    uvloop.run(gpu_first.first_figures(folder, RATES, _print))


def _print(figures: object) -> None:
    print(json.dumps(figures), flush=True)


PARTS: dict[str, Callable[[Path], object]] = {
    "layers": layers_ms,
    "predictor": predictor_ms,
    "codec": codec_ms,
    "engine": engine_figures,
    "engine-vllm": partial(engine_figures, voxgate_kernels=False),
    "first": first_figures,
}
"""engine-vllm: with `--gpu-kernels vllm`; all others with Voxgate's kernels."""


if __name__ == "__main__":
    if (figures := PARTS[sys.argv[2]](Path(sys.argv[1]))) is not None:
        _print(figures)
