"""How long each part of a step takes on this GPU by size of batch: code predictor, codec, and the whole talker.

`python -m voxgate.cli.gpu_parts CHECKPOINT PART` prints JSON; a process for each part, which leaves no memory taken.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

BATCHES = (1, 8, 12, 32, 64, 128, 256)
CODEC_SHAPES = ((1, 1), (8, 1), (32, 1), (64, 1), (128, 1), (1, 4), (16, 4), (16, 8))
ROUNDS = 30
FRAMES = 120
"""Of each generation of a talker measurement."""


def predictor_ms(folder: Path) -> dict[str, float]:
    """A frame's codes for so many rows, without head and first draw, as one graph; median."""
    import torch
    from safetensors import safe_open

    from ..pipeline.checkpoint import load_checkpoint
    from ..pipeline.talker.gpu_predictor import GpuCodePredictor
    from ..pipeline.talker.sampling import Candidates

    checkpoint = load_checkpoint(folder)
    with safe_open(folder / "model.safetensors", "pt", "cuda") as stored, torch.inference_mode():
        names = [name for name in stored.keys() if "code_predictor" in name]  # noqa: SIM118  # no mapping
        weights = {name: stored.get_tensor(name) for name in names}
        first = stored.get_tensor("talker.model.codec_embedding.weight")
        predictor = GpuCodePredictor(weights, first, checkpoint.predictor, checkpoint.groups, max(BATCHES))
        times = {}
        for rows in BATCHES:
            hidden = torch.randn(rows, checkpoint.talker.hidden, device="cuda", dtype=first.dtype)
            codes = torch.randint(checkpoint.codebook, (rows,), device="cuda")
            noise = torch.rand(rows, checkpoint.groups - 1, device="cuda")
            heat = torch.full((rows,), 0.9, device="cuda")
            limit = torch.full((rows,), 50, device="cuda")
            candidates = Candidates.of(heat, limit, torch.ones(rows, device="cuda"), checkpoint.codebook)
            times[str(rows)] = _graph_ms(lambda: predictor(hidden, codes, candidates, noise))  # noqa: B023  # run at once
    return times


def codec_ms(folder: Path) -> dict[str, float]:
    """A batch of (streams, frames) as one graph, in the precision that serving would choose; median."""
    import torch

    from ..pipeline.codec.gpu_worker import load_gpu_decoder

    decoder = load_gpu_decoder(folder / "speech_tokenizer", max(rows for rows, _ in CODEC_SHAPES), torch.device("cuda"))
    times = {}
    for rows, frames in CODEC_SHAPES:
        codes = torch.randint(decoder.codebook_size, (rows, frames, decoder.books), device="cuda")
        slots, fresh = torch.arange(rows, device="cuda"), torch.zeros(rows, dtype=torch.int64, device="cuda")
        times[f"{rows}x{frames}"] = _graph_ms(lambda: decoder.decode(codes, slots, fresh))  # noqa: B023  # run at once
    return times


def _graph_ms(run: Callable[[], object]) -> float:
    from ..codecs.neural.gpu_graph import capture, new_event

    graph, _ = capture(run)
    spans = []
    for _ in range(ROUNDS):
        begin, end = new_event(timing=True), new_event(timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        spans.append(float(begin.elapsed_time(end)))
    return round(statistics.median(spans[5:]), 3)


def talker_ms(folder: Path) -> dict[str, float]:
    """Wall time of a step of the whole talker, vLLM's scheduling included, with so many generations under way."""
    import uvloop

    times: dict[str, float] = uvloop.run(_talker_ms(folder))
    return times


async def _talker_ms(folder: Path) -> dict[str, float]:
    from ..pipeline.checkpoint import load_checkpoint
    from ..pipeline.talker.engine import EngineOptions, TalkerEngine

    began = time.monotonic()
    engine = TalkerEngine(load_checkpoint(folder), EngineOptions(slots=max(BATCHES), max_frames=400, device="cuda"))
    await engine.start()
    times = {"start_s": round(time.monotonic() - began, 1)}
    try:
        await _speak(engine, 4)
        for rows in BATCHES:
            times[str(rows)] = round(await _speak(engine, rows), 3)
    finally:
        await engine.close()
    return times


async def _speak(engine: object, rows: int) -> float:
    from ..pipeline.talker.engine import TalkerEngine
    from ..pipeline.talker.generation import Generation, Sampling
    from ..pipeline.talker.prompt import custom_voice_prompt

    assert isinstance(engine, TalkerEngine)
    voice = next(iter(engine.checkpoint.speakers))
    arrived: list[list[float]] = []

    async def listen(generation: Generation, times: list[float]) -> None:
        times.extend([time.monotonic() async for _ in generation])
        await generation.aclose()

    listening = []
    for number in range(rows):
        generation = engine.open()
        generation.prepare(
            custom_voice_prompt(engine.checkpoint, voice, "auto"),
            Sampling(0.9, 50, 1.0, 1.05, 0.9, 50, 1.0, number),
            FRAMES,
        )
        generation.grant(10_000)
        generation.feed([100 + number % 50] * 20)
        generation.close_text()
        arrived.append([])
        listening.append(asyncio.create_task(listen(generation, arrived[-1])))
    await asyncio.gather(*listening)
    # Between the frames that all make together.
    begin, end = max(times[5] for times in arrived), min(times[-5] for times in arrived)
    steps = statistics.median(sum(begin <= at <= end for at in times) for times in arrived)
    return 1000 * (end - begin) / max(1, steps - 1)


PARTS = {"predictor": predictor_ms, "codec": codec_ms, "talker": talker_ms}


if __name__ == "__main__":
    print(json.dumps(PARTS[sys.argv[2]](Path(sys.argv[1]))))
