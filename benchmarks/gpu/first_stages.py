"""Part `first` of `voxgate bench gpu`: the stages of an utterance from its text to its first PCM, without a socket.

While they are measured, calls on the way are wrapped in the gateway's and in the engine's process, so that serving pays
nothing for the measurement. All timestamps are of `time.monotonic`, which all processes of a machine share. The wrapped
functions are internal to the pipeline and to vLLM; `tests/benchmarks/gpu/test_first_stages.py` reports those that were
renamed.
"""

from __future__ import annotations

import asyncio
import functools
import os
import pickle
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from voxgate.loadtest.results import Percentiles
from voxgate.loadtest.virtual_user import SENTENCES
from voxgate.pipeline.codec import client, worker_loop
from voxgate.pipeline.codec.channels import QueuedJob
from voxgate.pipeline.interface import SpeechRequest
from voxgate.pipeline.ipc.records import HEADER, RecordFlag, unpack_pcm, unpack_records
from voxgate.pipeline.ipc.slot_tables import Field
from voxgate.pipeline.synthesizer import QwenSynthesizer
from voxgate.pipeline.talker import engine, generation
from voxgate.pipeline.talker.vllm.compat import engine_classes, request_channel
from voxgate.pipeline.voice_model import SynthesizerOptions

from .engine import CACHE_BYTES, FIRST_FRAMES, SHORT_FRAMES, acknowledge_playback, arrive

STAGES = {
    "submitted": "the text's first tokens are in the tables",
    "sent": "vLLM's front end has sent the request",
    "engine_received": "the engine's process has received it",
    "engine_accepted": "the engine's loop has accepted it, between two steps",
    "scheduled": "a step with it is scheduled",
    "backbone": "the host has launched the backbone of that step",
    "launched": "the host has launched all of that step",
    "frame_done": "the first frame is on the host",
    "frame_received": "the gateway has the frame",
    "decoded": "its PCM is on the host, where the engine's step decodes it; the codec's stages are then missing",
    "codec_submitted": "the codec has the job",
    "codec_started": "the codec has started its batch",
    "codec_done": "the codec has finished its batch",
    "pcm": "the gateway has the first PCM",
}
"""Stages in order, with what is true at the timestamp. With a prefilled prompt nothing is sent to the engine."""

Key = tuple[str, int]
"""("epoch", epoch of a generation) or ("slot", slot of a codec stream)."""


@dataclass(slots=True)
class StageTimestamps:
    """Timestamps of one process in order, `rows` of (seconds, stage, key), and the engine's `steps`."""

    rows: list[tuple[float, str, Key]] = field(default_factory=list)
    steps: list[HostStepTimes] = field(default_factory=list)

    def record(self, stage: str, keys: Iterable[Key], time_s: float | None = None) -> None:
        time_s = time.monotonic() if time_s is None else time_s
        self.rows.extend((time_s, stage, key) for key in keys)

    def take(self) -> tuple[list[tuple[float, str, Key]], list[HostStepTimes]]:
        """Returns everything recorded and clears it."""
        rows, steps, self.rows, self.steps = self.rows, self.steps, [], []
        return rows, steps


@dataclass(slots=True)
class HostStepTimes:
    """One step of the engine: its rows and positions, and when the host passed each point, in seconds."""

    rows: int
    positions: int
    began_s: float
    scheduled_s: float
    backbone_s: float = 0.0
    launched_s: float = 0.0
    outcome_s: float = 0.0


TIMESTAMPS = StageTimestamps()
"""The timestamps of this process."""


def wrap(owner: Any, name: str, around: Callable[[Callable[..., Any], Any, Any], Any]) -> None:
    """Replaces `owner.name` by a function that calls `around(call, args, kwargs)`."""
    inner = getattr(owner, name)

    @functools.wraps(inner)
    def outer(*args: Any, **kwargs: Any) -> Any:
        return around(functools.partial(inner, *args, **kwargs), args, kwargs)

    setattr(owner, name, outer)


def before(owner: Any, name: str, stage: str, keys: Callable[..., Iterable[Key]]) -> None:
    """Records the beginning of each call; `keys` maps its arguments to keys."""

    def around(call: Callable[..., Any], args: Any, _: Any) -> Any:
        TIMESTAMPS.record(stage, keys(*args))
        return call()

    wrap(owner, name, around)


def after(owner: Any, name: str, stage: str, keys: Callable[..., Iterable[Key]]) -> None:
    """Records the end of each call; `keys` maps its result and arguments to keys."""

    def around(call: Callable[..., Any], args: Any, _: Any) -> Any:
        result = call()
        TIMESTAMPS.record(stage, keys(result, *args))
        return result

    wrap(owner, name, around)


def watch_gateway(llm: Any) -> None:
    """Wraps the calls of the gateway's process; `llm` is vLLM's front end. To be called once."""
    before(engine.TalkerEngine, "run", "submitted", lambda _, slot, epoch, length: [("epoch", epoch)])  # noqa: ARG005 - the wrapped function's arguments
    # The coroutine sends when it first runs, which is at once.
    before(request_channel(llm), "add_request_async", "sent", lambda request: [_epoch(request.request_id)])
    before(
        generation.Generation,
        "on_record",
        "frame_received",
        lambda made, number, flags, _: [("epoch", made.epoch)] if number == 0 and not flags & RecordFlag.END else [],
    )
    before(
        client.CodecClient,
        "_submit",
        "codec_submitted",
        lambda _, job, about: [("slot", slot) for slot in job.slots],  # noqa: ARG005 - the wrapped function's arguments
    )


def watch_engine(worker_of_vllm: Any) -> None:
    """Wraps the calls of the engine's process; the argument is vLLM's worker. To be called once."""
    from voxgate.pipeline.talker.vllm.scheduler.credit import CreditScheduling

    core, executor = engine_classes()
    after(core, "preprocess_add_request", "engine_received", lambda got, *_: [_epoch(got[0].request_id)])
    before(core, "add_request", "engine_accepted", lambda _, request, *more: [_epoch(request.request_id)])  # noqa: ARG005 - the wrapped function's arguments
    fresh: list[Key] = []

    def schedule(call: Callable[..., Any], args: Any, _: Any) -> Any:
        began_s = time.monotonic()
        result = call()
        now_s = time.monotonic()
        fresh[:] = [_epoch(each.req_id) for each in result.scheduled_new_reqs] + _successors(args[0], result)
        TIMESTAMPS.record("scheduled", fresh, now_s)
        if result.total_num_scheduled_tokens:
            rows = len(result.num_scheduled_tokens)
            TIMESTAMPS.steps.append(HostStepTimes(rows, result.total_num_scheduled_tokens, began_s, now_s))
        return result

    def run(call: Callable[..., Any], _: Any, __: Any) -> Any:
        result = call()
        now_s = time.monotonic()
        TIMESTAMPS.record("backbone", fresh, now_s)
        if TIMESTAMPS.steps:
            TIMESTAMPS.steps[-1].backbone_s = now_s
        return result

    def finish(call: Callable[..., Any], _: Any, __: Any) -> Any:
        result = call()
        now_s = time.monotonic()
        TIMESTAMPS.record("launched", fresh, now_s)
        fresh.clear()
        if TIMESTAMPS.steps:
            TIMESTAMPS.steps[-1].launched_s = now_s
        return result

    def update(call: Callable[..., Any], _: Any, __: Any) -> Any:
        now_s = time.monotonic()
        for step in TIMESTAMPS.steps:
            if not step.outcome_s:
                step.outcome_s = now_s
                break
        return call()

    wrap(CreditScheduling, "schedule", schedule)
    wrap(CreditScheduling, "update_from_output", update)
    wrap(executor, "execute_model", run)
    wrap(executor, "sample_tokens", finish)
    step = getattr(worker_of_vllm.model_runner.model, "_step", None)
    sender = getattr(getattr(step, "_send", None), "__self__", None)
    if sender is not None:
        groups = sender.width - HEADER
        before(sender, "_send", "frame_done", lambda message: _first_frame_keys(message, groups))
        before(sender, "_send", "decoded", _pcm_keys)
        # On a GPU the codec runs in a thread of this process.
        before(worker_loop._WorkerLoop, "_launch", "codec_started", lambda _, batch: _slots(batch))
        after(worker_loop._WorkerLoop, "_answer", "codec_done", lambda _, __, done: _slots(done.jobs))


def take_timestamps(_: Any) -> bytes:
    """Returns the timestamps of the engine's process since the last call, pickled."""
    return pickle.dumps(TIMESTAMPS.take())


def _slots(batch: Iterable[QueuedJob]) -> list[Key]:
    return [("slot", slot) for queued in batch for slot in queued.job.slots]


def _first_frame_keys(message: bytes, groups: int) -> Iterable[Key]:
    if _pcm_keys(message):
        return []
    records = unpack_records(message, groups)
    if records.shape[1] == HEADER:
        return []
    first = records[(records[:, 2] == 0) & (records[:, 3] & RecordFlag.END == 0)]
    return [("epoch", epoch) for epoch in first[:, 1].tolist()]


def _pcm_keys(message: bytes) -> list[Key]:
    pcm = unpack_pcm(message)
    return [] if pcm is None else [("epoch", pcm[1])]


def _epoch(request_id: str) -> Key:
    """The epoch in a request id, to which vLLM appends characters; 0 for a request that prefills a prompt."""
    name = request_id.partition("-")[0]
    return "epoch", int(name) if name.isdecimal() else 0


def _successors(scheduler: Any, output: Any) -> list[Key]:
    """The generations that continue, in this step, from a prefilled prompt."""
    control, rows = scheduler._control, scheduler._prefill_rows
    continued = [rows[name] for name in scheduler._handed_over if name in output.num_scheduled_tokens]
    successors = [int(control[row, Field.SUCCESSOR]) - 1 for row in continued]
    return [("epoch", int(control[row, Field.EPOCH])) for row in successors if row >= 0]


def stages_ms(
    rows: Sequence[tuple[float, str, Key]], began_s: float, ended_s: float, epoch: int, slot: int
) -> dict[str, float]:
    """Milliseconds from the beginning of one utterance to each stage, in order, without stages that were not recorded.

    `rows` are those of all processes by time. The first matching row not before the previous stage counts.
    """
    keys = {("epoch", epoch), ("slot", slot)}
    last_s, reached = began_s, {}
    for stage in list(STAGES)[:-1]:
        time_s = next((at_s for at_s, name, key in rows if name == stage and key in keys and at_s >= last_s), None)
        if time_s is not None and time_s <= ended_s:
            last_s, reached[stage] = time_s, 1000 * (time_s - began_s)
    return reached | {"pcm": 1000 * (ended_s - began_s)}


def summarise_stages(timelines: Iterable[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """For each stage, in ms: p50 and p95 of the time it was reached, and of the time since the previous stage."""
    timelines = list(timelines)
    summary: dict[str, dict[str, float]] = {}
    for stage in STAGES:
        reached = [line for line in timelines if stage in line]
        if not reached:
            continue
        at, took = (
            Percentiles.of(line[stage] for line in reached),
            Percentiles.of(_took(line, stage) for line in reached),
        )
        summary[stage] = {"at": at.p50, "at95": at.p95, "took": took.p50, "took95": took.p95}
    return {stage: {name: round(ms, 2) for name, ms in each.items()} for stage, each in summary.items()}


def _took(line: Mapping[str, float], stage: str) -> float:
    passed = list(line)
    at = passed.index(stage)
    return line[stage] - (line[passed[at - 1]] if at else 0.0)


def summarise_steps(steps: Sequence[HostStepTimes]) -> dict[str, float]:
    """Host time of a step by phase and the interval between steps, in ms, and the rows of a step."""
    steps = [step for step in steps if step.launched_s and step.outcome_s]
    if len(steps) < 2:
        return {}
    outcomes = [1000 * (b.outcome_s - a.outcome_s) for a, b in pairwise(steps)]
    apart = Percentiles.of(gap for gap, step in zip(outcomes, steps[1:], strict=False) if gap < 1000 and step.rows)
    rows = Percentiles.of(float(step.rows) for step in steps)
    spans = {
        "schedule": Percentiles.of(1000 * (step.scheduled_s - step.began_s) for step in steps).p50,
        "backbone": Percentiles.of(1000 * (step.backbone_s - step.scheduled_s) for step in steps).p50,
        "launch": Percentiles.of(1000 * (step.launched_s - step.backbone_s) for step in steps).p50,
        "flight": Percentiles.of(1000 * (step.outcome_s - step.launched_s) for step in steps).p50,
        "apart": apart.p50,
        "apart95": apart.p95,
    }
    busy = sum(gap for gap in outcomes if gap < 20) / (1000 * (steps[-1].outcome_s - steps[0].outcome_s))
    figures = {name: round(ms, 2) for name, ms in spans.items()}
    return figures | {"steps": len(steps), "rows50": rows.p50, "rows95": rows.p95, "busy": round(busy, 2)}


ALONE = 20
WARM_UP_S, RATE_S = 0.5, 4.0
Figures = dict[str, Any]


async def first_figures(
    folder: Path, rates: tuple[float, ...], report: Callable[[Figures], None], **options: Any
) -> None:
    """Measures utterances alone and at `rates` per second, each for RATE_S; `report` gets all figures after each.

    `options` are further fields of `SynthesizerOptions`.
    """
    # vLLM refuses functions sent to the engine's process otherwise.
    os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
    began_s = time.monotonic()
    chosen: Figures = {"slots": 384, "device": "cuda", "kv_cache_bytes": CACHE_BYTES}
    synthesizer = QwenSynthesizer(folder, SynthesizerOptions(**chosen | options))
    await synthesizer.start()
    figures: Figures = {"start_s": round(time.monotonic() - began_s, 1)}
    try:
        await UtteranceTimelines(synthesizer).at(20, WARM_UP_S)
        watch_gateway(synthesizer.talker._process.llm)
        await synthesizer.talker.ask_worker(watch_engine)
        alone = UtteranceTimelines(synthesizer)
        await alone.one_by_one(ALONE)
        figures["alone"] = await alone.figures()
        report(figures)
        for rate in rates:
            arrivals = UtteranceTimelines(synthesizer)
            await arrivals.at(rate, RATE_S)
            figures[f"{rate:g}/s"] = await arrivals.figures()
            report(figures)
    finally:
        await synthesizer.close()


class UtteranceTimelines:
    """Speaks utterances and keeps, for each, the arguments of `stages_ms`."""

    def __init__(self, synthesizer: QwenSynthesizer) -> None:
        self._synthesizer = synthesizer
        self._utterances: list[tuple[float, float, int, int]] = []

    async def one_by_one(self, count: int) -> None:
        for _ in range(count):
            await self._run_utterance(SHORT_FRAMES)
            # Lets the engine become idle.
            await asyncio.sleep(0.05)

    async def at(self, rate_per_s: float, seconds: float) -> None:
        await arrive(lambda: self._run_utterance(FIRST_FRAMES), rate_per_s, seconds)

    async def figures(self) -> Figures:
        rows, steps = pickle.loads(await self._synthesizer.talker.ask_worker(take_timestamps))
        rows = sorted(rows + TIMESTAMPS.take()[0])
        timelines = [stages_ms(rows, *utterance) for utterance in self._utterances]
        return {"count": len(timelines), "stages": summarise_stages(timelines), "steps": summarise_steps(steps)}

    async def _run_utterance(self, frames: int) -> None:
        """Speaks one utterance, with acknowledged playback."""
        speech = self._synthesizer.open(SpeechRequest(self._synthesizer.default_voice, max_frames=frames))
        began_s = time.monotonic()
        speech.push_text(SENTENCES[0])
        speech.end()
        playing = asyncio.create_task(acknowledge_playback(speech))
        try:
            async for chunk in speech:
                if not chunk.first_frame and (generation := speech._generations.present) is not None:
                    slot: int = speech._codec._stream.slot  # type: ignore[attr-defined]  # every codec's streams have a slot
                    self._utterances.append((began_s, time.monotonic(), generation.epoch, slot))
        finally:
            playing.cancel()
            await speech.aclose()
