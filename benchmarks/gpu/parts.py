"""Times the parts of a talker step on this GPU by batch size: layers, code predictor, codec, and the whole engine.

`python -m voxgate.benchmarks.gpu.parts CHECKPOINT PART` prints JSON, of which the last line counts. Each part is timed
in a process of its own, which leaves no memory allocated.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from voxgate.pipeline.checkpoint.checkpoint import TransformerSize

BATCHES = (1, 8, 12, 16, 32, 64, 128, 256)
CODEC_SHAPES = (*((rows, 1) for rows in (1, 4, *BATCHES[1:])), (1, 4), (16, 4), (64, 4), (16, 8), (32, 8))
PREDICTOR_BATCHES = (*BATCHES[:4], 17, 24, *BATCHES[4:7], 160, 192, 256, 512, 1024)
LAYER_BATCHES = (1, 8, 12, 32, 64, 96, 128, 192, 256, 512)
PAST, PAGE = 120, 16
"""Past positions of each row, and positions of a page of the KV cache, when layers are timed."""
MAX_POSITIONS = 1024
"""Of the cosines and sines of the layers."""
ROUNDS = 30
RATES = (10, 20, 40, 60)
"""Utterances per second, for the first PCM."""


def predictor_ms(folder: Path, *, persistent: bool = True) -> dict[str, float]:
    """Median time of a frame's codes by rows, in ms, as one graph, without head and first code.

    `persistent`: as served; otherwise without the kernel for small batches.
    """
    import torch

    from .predictor import LoadedPredictor

    with torch.inference_mode():
        loaded = LoadedPredictor.load(folder, max(PREDICTOR_BATCHES), persistent_predictor=persistent)
        return {str(rows): graph_ms(partial(loaded.frames(rows), None)) for rows in PREDICTOR_BATCHES}


def layers_ms(folder: Path, cache: str = "bfloat16", *, streamed: bool = True) -> dict[str, float]:
    """Median time of the talker's layers by rows, in ms, as one graph: voxgate's kernels, over a cache of this type.

    `streamed`: as served; otherwise with the matrix library's products for few rows.
    """
    import torch
    from voxgate.pipeline.checkpoint.checkpoint import load_checkpoint

    with torch.inference_mode():
        size = load_checkpoint(folder).talker
        run = random_layers(
            size, max(LAYER_BATCHES), PAST, torch.device("cuda"), getattr(torch, cache), streamed=streamed
        )
        return {str(rows): graph_ms(partial(run, rows)) for rows in LAYER_BATCHES}


def random_layers(
    size: TransformerSize, max_rows: int, past: int, device: torch.device, cache: torch.dtype, *, streamed: bool = True
) -> Callable[[int], Tensor]:
    """A function that runs all layers, as served, for a number of rows `past` positions long.

    With random weights in bfloat16; `cache`: the type of its numbers; `streamed`: with `StreamedProducts`.
    """
    import torch
    from voxgate.pipeline.cuda.chip import chip_limits
    from voxgate.pipeline.talker.cuda.attention import CacheFormat, attention_for
    from voxgate.pipeline.talker.cuda.backbone import GpuBackbone
    from voxgate.pipeline.talker.cuda.backbone_kernels import BatchRows, LayerWeights
    from voxgate.pipeline.talker.cuda.streamed_products import streamed_products_for
    from voxgate.pipeline.talker.reference.predictor_weights import rotary

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device, dtype=torch.bfloat16).mul_(shape[-1] ** -0.5)

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
    angles = torch.cat([part.chunk(2, -1)[0] for part in rotary(torch.arange(MAX_POSITIONS, device=device), size)], -1)
    angles = angles.bfloat16()
    pages = -(-(past + 1) // PAGE)
    caches = [
        random(max_rows * pages, PAGE, size.kv_heads, 2 * size.head_dim).to(cache).transpose(1, 2) for _ in layers
    ]
    owned = torch.randperm(max_rows * pages, device=device).int().view(max_rows, pages)
    attention = attention_for(size, angles, CacheFormat(PAGE, cache), chip_limits())
    products = streamed_products_for(layers[0], size, chip_limits()) if streamed else None
    norm = random(size.hidden) * 0 + 1
    gpu = GpuBackbone(layers, norm, angles, size, max_rows, attention=attention, streamed=products)
    embedded = random(max_rows, size.hidden)

    def run(rows: int) -> Tensor:
        numbers = torch.arange(rows, device=device)
        positions = owned[:rows, past // PAGE].long() * PAGE + past % PAGE
        starts = torch.arange(rows + 1, dtype=torch.int32, device=device)
        return gpu(embedded[:rows], BatchRows(numbers, numbers * 0 + past, positions, owned[:rows], starts), caches)

    return run


def codec_ms(folder: Path) -> dict[str, float]:
    """Median time of a batch by "streams x frames", in ms, as one graph, in the precision that serving chooses."""
    import torch
    from voxgate.pipeline.codec.gpu_worker import load_gpu_decoder

    decoder = load_gpu_decoder(folder / "speech_tokenizer", max(rows for rows, _ in CODEC_SHAPES), torch.device("cuda"))
    times = {}
    for rows, frames in CODEC_SHAPES:
        codes = torch.randint(decoder.codebook_size, (rows, frames, decoder.codebooks), device="cuda")
        slots, fresh = torch.arange(rows, device="cuda"), torch.zeros(rows, dtype=torch.int64, device="cuda")
        times[f"{rows}x{frames}"] = graph_ms(lambda: decoder.decode(codes, slots, fresh))  # noqa: B023  # run at once
    return times


def graph_ms(run: Callable[[], object]) -> float:
    """Median time of what `run` launches, in ms, as one graph."""
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
    """Prints the figures of `engine.py`."""
    import uvloop

    from . import engine

    uvloop.run(engine.engine_figures(folder, RATES, _print, voxgate_kernels=voxgate_kernels))


def attention_figures(folder: Path) -> dict[str, dict[str, float]]:
    """The figures of `attention.py`."""
    from . import attention

    return attention.attention_ms(folder)


def first_figures(folder: Path) -> None:
    """Prints the figures of `first_stages.py`."""
    import uvloop

    from . import first_stages

    uvloop.run(first_stages.first_figures(folder, RATES, _print))


def soak_figures(folder: Path) -> dict[str, Any]:
    """Figures of `soak.py`."""
    from . import soak

    return soak.soak_figures(folder, _print)


def sharing_figures(folder: Path) -> dict[str, Any]:
    """Figures of `sharing.py`."""
    from . import sharing

    return sharing.sharing_figures(folder, _print)


def abort_figures(folder: Path) -> dict[str, Any]:
    """Figures of `aborts.py`."""
    import uvloop

    from . import aborts

    figures: dict[str, Any] = uvloop.run(aborts.abort_figures(folder))
    return figures


def _print(figures: object) -> None:
    print(json.dumps(figures), flush=True)


PARTS: dict[str, Callable[[Path], object]] = {
    "layers": layers_ms,
    "layers-library": partial(layers_ms, streamed=False),
    "layers-fp8": partial(layers_ms, cache="float8_e4m3fn"),
    "attention": attention_figures,
    "predictor": predictor_ms,
    "predictor-chain": partial(predictor_ms, persistent=False),
    "codec": codec_ms,
    "engine": engine_figures,
    "engine-vllm": partial(engine_figures, voxgate_kernels=False),
    "first": first_figures,
    "sharing": sharing_figures,
    "soak": soak_figures,
    "aborts": abort_figures,
}
"""layers-fp8: with `--kv-cache-dtype fp8`; engine-vllm: with `--gpu-kernels vllm`; predictor-chain: without the
persistent kernel; others with the defaults."""


if __name__ == "__main__":
    if (figures := PARTS[sys.argv[2]](Path(sys.argv[1]))) is not None:
        _print(figures)
