"""What the device does while a step is made, by kernel: vLLM's worker is profiled, with generations under way.

Both functions are sent to the engine's process and run there.
"""
# TODO-DOC What the engine itself takes, no socket in front: a whole step and its backbone by batch, and the first
# TODO-DOC PCM. One engine for all of it, since starting one is what takes longest. Random weights are as fast as real
# TODO-DOC ones.

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
from voxgate.pipeline.talker.vllm.config import GpuOptions
from voxgate.pipeline.voice_model import SynthesizerOptions

LIBRARY = re.compile(r"nvjet|cublas|cutlass|gemm", re.IGNORECASE)
"""Names of the library's products, a dozen shapes of them."""
SHOWN = 10
"""Kernels that are named; the others' time is one figure."""
_running: list[Any] = []


def begin_profile(worker: Any) -> None:  # noqa: ARG001 - vLLM hands itself over
    """Record every kernel from now on."""
    from torch.profiler import ProfilerActivity, profile

    recording = profile(activities=[ProfilerActivity.CUDA])
    recording.start()
    _running.append(recording)


def end_profile(worker: Any) -> dict[str, float]:  # noqa: ARG001 - vLLM hands itself over
    """Stop, and give `shares_of` what ran since `begin_profile`."""
    import torch

    torch.cuda.synchronize()
    recording = _running.pop()
    recording.stop()
    ran = [event for event in recording.events() if event.device_type.name == "CUDA"]
    return shares_of((event.time_range.start, event.time_range.end, event.name) for event in ran)


def shares_of(spans: Iterable[tuple[float, float, str]]) -> dict[str, float]:
    """From (begin, end, name) of kernels and copies: the share of the time with anything under way, "busy", and the
    share that each takes of all that ran, the longest first. Kernels may overlap. Empty where nothing ran.
    """
    took: defaultdict[str, float] = defaultdict(float)
    busy = end = 0.0
    ordered = sorted(spans)
    for begin, until, name in ordered:
        took["the library's products" if LIBRARY.search(name) else _short(name)] += until - begin
        busy += max(0.0, until - max(begin, end))
        end = max(end, until)
    if not took:
        return {}
    all_took = sum(took.values())
    longest = sorted(took.items(), key=lambda each: -each[1])
    shares = {name: round(each / all_took, 3) for name, each in longest[:SHOWN]}
    rest = sum(each for _, each in longest[SHOWN:])
    return {"busy": round(busy / (end - ordered[0][0]), 3), **shares, "others": round(rest / all_took, 3)}


def _short(name: str) -> str:
    """Without arguments and namespaces, of which torch's kernels have lines."""
    return name.removeprefix("void ").partition("<")[0].partition("(")[0].rpartition("::")[2] or name[:40]


BATCHES = (1, 8, 12, 16, 32, 64, 128, 256)
FRAMES = 120
"""Of each generation of a step's measurement."""
EDGE_FRAMES = 5
"""At both ends of a generation, when not all speak together."""
FIRST_FRAMES = 63
"""Five seconds, of each utterance that is heard for its first PCM."""
FIRST_S, SETTLE_S = 3.0, 0.5
"""How long utterances arrive, and how long after it the last one's first PCM may come."""
ALONE, SHORT_FRAMES = 15, 12
"""Utterances one after another, and their length."""
ADVANCE_S = 0.16
REPLAYS = 20
PROFILED = (12, 128, 256)
PROFILE_S = 0.1
"""How long a step's kernels are recorded, by so many utterances."""
CACHE_BYTES = 16 << 30
"""Of the talker's cache: ample for what is said here, and room is left on the GPU for others."""
Figures = dict[str, Any]


async def engine_figures(
    folder: Path, rates: tuple[int, ...], report: Callable[[Figures], None], *, voxgate_kernels: bool = False
) -> None:
    """Measure; `report` has all figures so far, again and again, so that what fails later loses nothing.

    talker: ms of a step, vLLM's scheduling included; backbone: ms of its graph alone on the device; profile: shares of
    the device's time by kernel; first: by utterances a second, ms from the text to the first PCM, and on the way there.
    """
    # A function is sent to the engine's process, which takes none otherwise.
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
    """Utterances that arrive by themselves, or, without a rate, one after another."""
    reached: list[dict[str, float]] = []
    if rate_per_s is None:
        for _ in range(ALONE):
            await _hear(synthesizer, SHORT_FRAMES, reached)
    else:
        await arrive(lambda: _hear(synthesizer, FIRST_FRAMES, reached), rate_per_s, seconds)
    first = Percentiles.of(each["pcm"] for each in reached)
    stages = {f"{name}_mean": round(statistics.fmean(each[name] for each in reached), 2) for name in reached[0]}
    return {"count": first.count, "p50": round(first.p50, 2), "p95": round(first.p95, 2), **stages}


async def arrive(hear: Callable[[], Coroutine[Any, Any, None]], rate_per_s: float, seconds: float) -> None:
    """Hear utterances that arrive as a Poisson process, which waits for nobody, until SETTLE_S after the last came.

    Raises what the first of them that failed has raised.
    """
    chance, loop = random.Random(1), asyncio.get_running_loop()
    due_s = loop.time()
    end_s = due_s + seconds
    hearing = []
    while due_s < end_s:
        await asyncio.sleep(max(0.0, due_s - loop.time()))
        hearing.append(asyncio.create_task(hear()))
        due_s += chance.expovariate(rate_per_s)
    _, still = await asyncio.wait(hearing, timeout=SETTLE_S)
    # The rest of what they say tells nothing more.
    for task in still:
        task.cancel()
    for ended in await asyncio.gather(*hearing, return_exceptions=True):
        if isinstance(ended, Exception):
            raise ended


async def _hear(synthesizer: QwenSynthesizer, frames: int, reached: list[dict[str, float]]) -> None:
    """One utterance, heard at a listener's pace; adds when it came how far, in ms from its text."""
    loop = asyncio.get_running_loop()
    speech = synthesizer.open(SpeechRequest(synthesizer.default_voice, max_frames=frames))
    began_s, exactly_s = loop.time(), time.monotonic()
    speech.push_text(SENTENCES[0])
    speech.end()
    playing = asyncio.create_task(play(speech))
    try:
        async for chunk in speech:
            if not chunk.first_frame:
                marks = speech.milestones
                # On the loop's clock, which tells milliseconds alone: right on average.
                stages = {"text": marks.first_token_s, "frame": marks.first_frame_s}
                shown = {name: 1000 * (at_s - began_s) for name, at_s in stages.items() if at_s is not None}
                reached.append(shown | {"pcm": 1000 * (time.monotonic() - exactly_s)})
    finally:
        playing.cancel()
        await speech.aclose()


async def play(speech: Speech) -> None:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while True:
        await asyncio.sleep(ADVANCE_S)
        speech.advance(int(1000 * (loop.time() - began_s)) // FRAME_MS)


async def step_ms(engine: TalkerEngine, rows: int) -> float:
    """Wall time of a step with so many generations under way, between the frames that all make together."""
    voice = next(iter(engine.checkpoint.speakers))
    arrived: list[list[float]] = []

    async def listen(generation: Generation, times: list[float]) -> None:
        times.extend([time.monotonic() async for _ in generation])
        await generation.aclose()

    async with asyncio.TaskGroup() as listening:
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
            listening.create_task(listen(generation, arrived[-1]))
    begin = max(times[EDGE_FRAMES] for times in arrived)
    end = min(times[-EDGE_FRAMES] for times in arrived)
    steps = statistics.median(sum(begin <= at <= end for at in times) for times in arrived)
    return 1000 * (end - begin) / max(1, steps - 1)


async def _profile(engine: TalkerEngine, rows: int) -> dict[str, float]:
    """Shares of the device's time, while so many generations are under way."""
    speaking = asyncio.create_task(step_ms(engine, rows))
    await asyncio.sleep(PROFILE_S)
    await engine.ask_worker(begin_profile)
    await asyncio.sleep(PROFILE_S)
    shares: dict[str, float] = await engine.ask_worker(end_profile)
    await speaking
    return shares


def backbone_ms(worker: Any) -> dict[str, float]:
    """In the engine's process, when it is idle: vLLM's graphs of the backbone, replayed with their last input; median.

    `worker` is vLLM's, which has no public name for its graphs (0.26, second model runner).
    """
    import torch
    from voxgate.pipeline.cuda.graphs import new_event

    times = {}
    for shape, graph in worker.model_runner.cudagraph_manager.graphs.items():
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
