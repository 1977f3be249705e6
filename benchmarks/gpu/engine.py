"""Part `engine` of `voxgate bench gpu`: the speech engine without a socket.

One engine, because starting it takes longest, is measured for its first PCM, its steps by batch size, the backbone of a
step, and the shares of the GPU's time by kernel. Random weights are as fast as trained ones.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

from voxgate.codecs.pcm import FRAME_MS
from voxgate.loadtest.results import Percentiles
from voxgate.loadtest.virtual_user import SENTENCES
from voxgate.pipeline.interface import Speech, SpeechRequest
from voxgate.pipeline.synthesizer import QwenSynthesizer
from voxgate.pipeline.talker.engine import TalkerEngine
from voxgate.pipeline.talker.generation import Generation, Sampling
from voxgate.pipeline.talker.prompt import custom_voice_prompt
from voxgate.pipeline.talker.vllm.compat import backbone_graphs
from voxgate.pipeline.talker.vllm.config import GpuOptions
from voxgate.pipeline.voice_model import SynthesizerOptions

BATCHES = (1, 8, 12, 16, 32, 64, 128, 256)
FRAMES = 120
"""Frames of each generation when steps are measured."""
EDGE_FRAMES = 5
"""Frames left out at both ends of a generation, when not all generations are active."""
FIRST_FRAMES = 63
"""Frames (five seconds) of each utterance whose first PCM is measured."""
FIRST_S, SETTLE_S = 3.0, 0.5
"""How long utterances arrive, and how long their first PCM is then waited for."""
ALONE, SHORT_FRAMES = 15, 12
"""Number of utterances spoken one after another, and their length in frames."""
ADVANCE_S = 0.16
REPLAYS = 20
PROFILED = (12, 128, 256)
PROFILE_S = 0.1
"""How long kernels are recorded, for each number of utterances of PROFILED."""
CACHE_BYTES = 16 << 30
"""Size of the talker's KV cache: ample for these utterances, and small enough for a shared GPU."""
Figures = dict[str, Any]


async def engine_figures(
    folder: Path, rates: tuple[int, ...], report: Callable[[Figures], None], *, voxgate_kernels: bool = False
) -> None:
    """Measures the engine; `report` gets all figures after each measurement, so that a later failure loses nothing.

    "first": by utterances per second, ms from the text to the first PCM and to the stages before; "talker": ms of a
    step with vLLM's scheduling, by batch size; "backbone": ms of its graph alone; "profile": shares of the GPU's time.
    """
    # vLLM refuses functions sent to the engine's process otherwise.
    os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
    began_s = time.monotonic()
    options = SynthesizerOptions(
        slots=max(BATCHES), device="cuda", kv_cache_bytes=CACHE_BYTES, gpu=GpuOptions(voxgate_kernels=voxgate_kernels)
    )
    synthesizer = QwenSynthesizer(folder, options)
    await synthesizer.start()
    figures: Figures = {"start_s": round(time.monotonic() - began_s, 1), "first": {}, "talker": {}}
    try:
        await _first_pcm(synthesizer, 20, 1.0)
        figures["first"]["alone"] = await _first_pcm(synthesizer, None, 0.0)
        for rate in rates:
            figures["first"][str(rate)] = await _first_pcm(synthesizer, rate, FIRST_S)
            report(figures)
        talker = synthesizer.talker
        await step_ms(talker, 4)
        for rows in BATCHES:
            figures["talker"][str(rows)] = round(await step_ms(talker, rows), 3)
            report(figures)
        figures["backbone"] = await talker.ask_worker(backbone_ms)
        report(figures)
        figures["profile"] = {}
        for rows in PROFILED:
            figures["profile"][str(rows)] = await _profile(talker, rows)
            report(figures)
    finally:
        await synthesizer.close()


async def _first_pcm(synthesizer: QwenSynthesizer, rate_per_s: float | None, seconds: float) -> Figures:
    """Figures of utterances that arrive at a rate, or, without one, follow each other."""
    reached: list[dict[str, float]] = []
    if rate_per_s is None:
        for _ in range(ALONE):
            await _run_utterance(synthesizer, SHORT_FRAMES, reached)
    else:
        await arrive(lambda: _run_utterance(synthesizer, FIRST_FRAMES, reached), rate_per_s, seconds)
    first = Percentiles.of(each["pcm"] for each in reached)
    stages = {f"{name}_mean": round(statistics.fmean(each[name] for each in reached), 2) for name in reached[0]}
    return {"count": first.count, "p50": round(first.p50, 2), "p95": round(first.p95, 2), **stages}


async def arrive(speak: Callable[[], Coroutine[Any, Any, None]], rate_per_s: float, seconds: float) -> None:
    """Starts `speak` as a Poisson process for `seconds`, then waits for at most SETTLE_S and cancels what still runs.

    Raises the first error.
    """
    chance, loop = random.Random(1), asyncio.get_running_loop()
    due_s = loop.time()
    end_s = due_s + seconds
    speaking = []
    while due_s < end_s:
        await asyncio.sleep(max(0.0, due_s - loop.time()))
        speaking.append(asyncio.create_task(speak()))
        due_s += chance.expovariate(rate_per_s)
    _, pending = await asyncio.wait(speaking, timeout=SETTLE_S)
    for task in pending:
        task.cancel()
    for ended in await asyncio.gather(*speaking, return_exceptions=True):
        if isinstance(ended, Exception):
            raise ended


async def _run_utterance(synthesizer: QwenSynthesizer, frames: int, reached: list[dict[str, float]]) -> None:
    """Speaks one utterance with acknowledged playback; appends the milliseconds from its text to each stage."""
    loop = asyncio.get_running_loop()
    speech = synthesizer.open(SpeechRequest(synthesizer.default_voice, max_frames=frames))
    began_s, began_exactly_s = loop.time(), time.monotonic()
    speech.push_text(SENTENCES[0])
    speech.end()
    playing = asyncio.create_task(acknowledge_playback(speech))
    try:
        async for chunk in speech:
            if not chunk.first_frame:
                milestones = speech.milestones
                # Milestones are times of the loop's clock, with a resolution of 1 ms: only their mean is exact.
                stages = {"text": milestones.first_token_s, "frame": milestones.first_frame_s}
                known = {name: 1000 * (at_s - began_s) for name, at_s in stages.items() if at_s is not None}
                reached.append(known | {"pcm": 1000 * (time.monotonic() - began_exactly_s)})
    finally:
        playing.cancel()
        await speech.aclose()


async def acknowledge_playback(speech: Speech) -> None:
    """Acknowledges playback in real time until it is cancelled."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while True:
        await asyncio.sleep(ADVANCE_S)
        speech.advance(int(1000 * (loop.time() - began_s)) // FRAME_MS)


async def step_ms(engine: TalkerEngine, rows: int) -> float:
    """Wall time, in ms, of a step with `rows` generations, over the frames in which all are active."""
    voice = next(iter(engine.checkpoint.speakers))
    arrived: list[list[float]] = []

    async def receive(generation: Generation, times: list[float]) -> None:
        times.extend([time.monotonic() async for _ in generation])
        await generation.aclose()

    async with asyncio.TaskGroup() as receiving:
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
            receiving.create_task(receive(generation, arrived[-1]))
    begin = max(times[EDGE_FRAMES] for times in arrived)
    end = min(times[-EDGE_FRAMES] for times in arrived)
    steps = statistics.median(sum(begin <= at <= end for at in times) for times in arrived)
    return 1000 * (end - begin) / max(1, steps - 1)


async def _profile(engine: TalkerEngine, rows: int) -> dict[str, float]:
    """Shares of the GPU's time by kernel, with `rows` generations active."""
    speaking = asyncio.create_task(step_ms(engine, rows))
    await asyncio.sleep(PROFILE_S)
    await engine.ask_worker(begin_profile)
    await asyncio.sleep(PROFILE_S)
    shares: dict[str, float] = await engine.ask_worker(end_profile)
    await speaking
    return shares


def backbone_ms(worker: Any) -> dict[str, float]:
    """Median time of vLLM's graphs of the backbone, in ms by batch size, replayed in the idle engine's process.

    `worker`: vLLM's.
    """
    import torch
    from voxgate.pipeline.cuda.graphs import new_event

    times = {}
    for shape, graph in backbone_graphs(worker).items():
        if shape.num_tokens not in BATCHES:
            continue
        spans = []
        for _ in range(REPLAYS):
            begin, end = new_event(timing=True), new_event(timing=True)
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            spans.append(float(begin.elapsed_time(end)))
        times[str(shape.num_tokens)] = round(statistics.median(spans[3:]), 3)
    return dict(sorted(times.items(), key=lambda each: int(each[0])))


# Profile of the GPU, by functions that run in the engine's process

LIBRARY = re.compile(r"nvjet|cublas|cutlass|gemm", re.IGNORECASE)
"""Names of the matrix library's kernels, of which there are a dozen shapes."""
SHOWN = 10
"""Kernels that are reported by name; the others are summed."""
_running: list[Any] = []


def begin_profile(worker: Any) -> None:  # noqa: ARG001 - vLLM passes its worker
    """Starts to record every kernel."""
    from torch.profiler import ProfilerActivity, profile

    recording = profile(activities=[ProfilerActivity.CUDA])
    recording.start()
    _running.append(recording)


def end_profile(worker: Any) -> dict[str, float]:  # noqa: ARG001 - vLLM passes its worker
    """Stops recording and returns `shares_of` the kernels since `begin_profile`."""
    import torch

    torch.cuda.synchronize()
    recording = _running.pop()
    recording.stop()
    events = [event for event in recording.events() if event.device_type.name == "CUDA"]
    return shares_of((event.time_range.start, event.time_range.end, event.name) for event in events)


def shares_of(spans: Iterable[tuple[float, float, str]]) -> dict[str, float]:
    """Shares by kernel, from the (begin, end, name) of kernels and copies, which may overlap.

    "busy" is the share of the time in which anything ran; the others are shares of the summed times, the largest first.
    Empty without kernels.
    """
    time_of: defaultdict[str, float] = defaultdict(float)
    busy = end = 0.0
    ordered = sorted(spans)
    for begin, until, name in ordered:
        time_of["matrix library" if LIBRARY.search(name) else _short(name)] += until - begin
        busy += max(0.0, until - max(begin, end))
        end = max(end, until)
    if not time_of:
        return {}
    all_time_of = sum(time_of.values())
    longest = sorted(time_of.items(), key=lambda each: -each[1])
    shares = {name: round(each / all_time_of, 3) for name, each in longest[:SHOWN]}
    rest = sum(each for _, each in longest[SHOWN:])
    return {"busy": round(busy / (end - ordered[0][0]), 3), **shares, "others": round(rest / all_time_of, 3)}


def _short(name: str) -> str:
    """The name without arguments and namespaces, which fill lines for torch's kernels."""
    return name.removeprefix("void ").partition("<")[0].partition("(")[0].rpartition("::")[2] or name[:40]
