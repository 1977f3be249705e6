"""Where the time goes from an utterance's text to its first PCM: moments noted in the gateway and in its engine.

Calls on the way are wrapped while they are measured, in both processes, so that serving pays nothing for it. All clocks
are the machine's own (`time.monotonic`), which every process reads alike.
"""
# TODO-DOC The way of an utterance from its text to its first PCM, stage by stage, in an engine without a socket in
# TODO-DOC front.

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
from voxgate.pipeline.codec import client
from voxgate.pipeline.codec import worker_loop as answering
from voxgate.pipeline.codec.channels import QueuedJob
from voxgate.pipeline.interface import SpeechRequest
from voxgate.pipeline.ipc.records import HEADER, RecordFlag, unpack_pcm, unpack_records
from voxgate.pipeline.ipc.slot_tables import Field
from voxgate.pipeline.synthesizer import QwenSynthesizer
from voxgate.pipeline.talker import engine, generation
from voxgate.pipeline.talker.vllm.compat import engine_classes
from voxgate.pipeline.voice_model import SynthesizerOptions

from .engine import CACHE_BYTES, FIRST_FRAMES, SHORT_FRAMES, arrive, play

STAGES = (
    "asked",
    "sent",
    "read",
    "taken",
    "ordered",
    "backbone",
    "launched",
    "made",
    "heard of",
    "decoded",
    "codec asked",
    "codec begins",
    "codec ends",
    "pcm",
)
"""asked: the text's first tokens are in the tables; sent: vLLM's front has passed it on; read: the engine's process has
it; taken: its loop does, between two steps (these three are not there where the prompt had been read); ordered: a
step with it is; backbone, launched: so far has the host come
with that step's kernels; made: its frame is on the host; heard of: the gateway has it; decoded: its sound is on the
host, where the engine decoded it itself, and the codec's three are missing; pcm: the first sound."""

Key = tuple[str, int]
"""("epoch", of a generation) or ("slot", of a codec's stream)."""


@dataclass(slots=True)
class StageTimestamps:
    """Moments in one process, as they came: seconds, stage, key. `steps`: of each step of the engine's, what it had."""

    rows: list[tuple[float, str, Key]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def note(self, stage: str, keys: Iterable[Key], at_s: float | None = None) -> None:
        at_s = time.monotonic() if at_s is None else at_s
        self.rows.extend((at_s, stage, key) for key in keys)

    def take(self) -> tuple[list[tuple[float, str, Key]], list[Step]]:
        """Everything so far; from here on anew."""
        rows, steps, self.rows, self.steps = self.rows, self.steps, [], []
        return rows, steps


@dataclass(slots=True)
class Step:
    """One step: how many rows and positions, and when the host had come how far with it (seconds)."""

    rows: int
    positions: int
    begun_s: float
    ordered_s: float
    backbone_s: float = 0.0
    launched_s: float = 0.0
    outcome_s: float = 0.0


TIMESTAMPS = StageTimestamps()
"""Of this process."""


def wrap(owner: Any, name: str, around: Callable[[Callable[..., Any], Any, Any], Any]) -> None:
    """Have `owner.name(...)` go through `around(call, args, kwargs)`."""
    inner = getattr(owner, name)

    @functools.wraps(inner)
    def outer(*args: Any, **kwargs: Any) -> Any:
        return around(functools.partial(inner, *args, **kwargs), args, kwargs)

    setattr(owner, name, outer)


def before(owner: Any, name: str, stage: str, keys: Callable[..., Iterable[Key]]) -> None:
    """Note the call's beginning; `keys` of its arguments."""

    def around(call: Callable[..., Any], args: Any, _: Any) -> Any:
        TIMESTAMPS.note(stage, keys(*args))
        return call()

    wrap(owner, name, around)


def after(owner: Any, name: str, stage: str, keys: Callable[..., Iterable[Key]]) -> None:
    """Note the call's end; `keys` of what it returned and its arguments."""

    def around(call: Callable[..., Any], args: Any, _: Any) -> Any:
        result = call()
        TIMESTAMPS.note(stage, keys(result, *args))
        return result

    wrap(owner, name, around)


def watch_gateway(llm: Any) -> None:
    """In the gateway's process, once; `llm` is vLLM's front."""
    before(engine.TalkerEngine, "run", "asked", lambda _, slot, epoch, length: [("epoch", epoch)])  # noqa: ARG005 - as in what is watched
    # It is sent when the coroutine is first run, which is at once.
    before(llm.engine_core, "add_request_async", "sent", lambda request: [_epoch(request.request_id)])
    before(
        generation.Generation,
        "take",
        "heard of",
        lambda made, number, flags, _: [("epoch", made.epoch)] if number == 0 and not flags & RecordFlag.END else [],
    )
    before(
        client.CodecClient,
        "_submit",
        "codec asked",
        lambda _, job, about: [("slot", slot) for slot in job.slots],  # noqa: ARG005 - as in what is watched
    )


def watch_engine(worker_of_vllm: Any) -> None:
    """In the engine's process, once; the argument is vLLM's worker."""
    from voxgate.pipeline.talker.vllm.scheduler import CreditScheduling

    core, executor = engine_classes()
    after(core, "preprocess_add_request", "read", lambda got, *_: [_epoch(got[0].request_id)])
    before(core, "add_request", "taken", lambda _, request, *more: [_epoch(request.request_id)])  # noqa: ARG005 - as in what is watched
    fresh: list[Key] = []

    def order(call: Callable[..., Any], args: Any, _: Any) -> Any:
        begun_s = time.monotonic()
        result = call()
        now_s = time.monotonic()
        fresh[:] = [_epoch(each.req_id) for each in result.scheduled_new_reqs] + _heirs(args[0], result)
        TIMESTAMPS.note("ordered", fresh, now_s)
        if result.total_num_scheduled_tokens:
            rows = len(result.num_scheduled_tokens)
            TIMESTAMPS.steps.append(Step(rows, result.total_num_scheduled_tokens, begun_s, now_s))
        return result

    def run(call: Callable[..., Any], _: Any, __: Any) -> Any:
        result = call()
        now_s = time.monotonic()
        TIMESTAMPS.note("backbone", fresh, now_s)
        if TIMESTAMPS.steps:
            TIMESTAMPS.steps[-1].backbone_s = now_s
        return result

    def finish(call: Callable[..., Any], _: Any, __: Any) -> Any:
        result = call()
        now_s = time.monotonic()
        TIMESTAMPS.note("launched", fresh, now_s)
        fresh.clear()
        if TIMESTAMPS.steps:
            TIMESTAMPS.steps[-1].launched_s = now_s
        return result

    def outcome(call: Callable[..., Any], _: Any, __: Any) -> Any:
        now_s = time.monotonic()
        for step in TIMESTAMPS.steps:
            if not step.outcome_s:
                step.outcome_s = now_s
                break
        return call()

    wrap(CreditScheduling, "schedule", order)
    wrap(CreditScheduling, "update_from_output", outcome)
    wrap(executor, "execute_model", run)
    wrap(executor, "sample_tokens", finish)
    step = getattr(worker_of_vllm.model_runner.model, "_step", None)
    sender = getattr(getattr(step, "_send", None), "__self__", None)
    if sender is not None:
        width = sender._free.queue[0][0].shape[1]
        before(sender, "_send", "made", lambda message: _firsts(message, width - HEADER))
        before(sender, "_send", "decoded", _sounds)
        # On a GPU the codec is a thread of this process.
        before(answering._WorkerLoop, "_launch", "codec begins", lambda _, batch: _slots(batch))
        after(answering._WorkerLoop, "_answer", "codec ends", lambda _, __, done: _slots(done.jobs))


def take_timestamps(_: Any) -> bytes:
    """In the engine's process: what was noted there since the last call, pickled."""
    return pickle.dumps(TIMESTAMPS.take())


def _slots(batch: Iterable[QueuedJob]) -> list[Key]:
    return [("slot", slot) for queued in batch for slot in queued.job.slots]


def _firsts(message: bytes, groups: int) -> Iterable[Key]:
    if _sounds(message):
        return []
    records = unpack_records(message, groups)
    if records.shape[1] == HEADER:
        return []
    first = records[(records[:, 2] == 0) & (records[:, 3] & RecordFlag.END == 0)]
    return [("epoch", epoch) for epoch in first[:, 1].tolist()]


def _sounds(message: bytes) -> list[Key]:
    sound = unpack_pcm(message)
    return [] if sound is None else [("epoch", sound[1])]


def _epoch(request_id: str) -> Key:
    """vLLM puts letters of its own behind the name that it was given. Who reads a prompt for later has no epoch."""
    name = request_id.partition("-")[0]
    return "epoch", int(name) if name.isdecimal() else 0


def _heirs(scheduler: Any, order: Any) -> list[Key]:
    """Generations that go on in this step from a prompt that had been read."""
    control, rows = scheduler._control, scheduler._prefill_rows
    going_on = [rows[name] for name in scheduler._handed_over if name in order.num_scheduled_tokens]
    heirs = [int(control[row, Field.SUCCESSOR]) - 1 for row in going_on]
    return [("epoch", int(control[heir, Field.EPOCH])) for heir in heirs if heir >= 0]


def stages_ms(
    rows: Sequence[tuple[float, str, Key]], began_s: float, ended_s: float, epoch: int, slot: int
) -> dict[str, float]:
    """Of one utterance, ms from its beginning to each stage, in their order; those that nobody noted are left out.

    `rows`: of all processes, by time. Of moments that fit the first counts that is not before the stage before it.
    """
    mine = {("epoch", epoch), ("slot", slot)}
    last_s, reached = began_s, {}
    for stage in STAGES[:-1]:
        at_s = next((at for at, name, key in rows if name == stage and key in mine and at >= last_s), None)
        if at_s is not None and at_s <= ended_s:
            last_s, reached[stage] = at_s, 1000 * (at_s - began_s)
    return reached | {"pcm": 1000 * (ended_s - began_s)}


def spread_of(timelines: Iterable[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """For each stage: when it was reached, p50 and p95, and how long after the one before it, ms."""
    timelines = list(timelines)
    told: dict[str, dict[str, float]] = {}
    for stage in STAGES:
        reached = [line for line in timelines if stage in line]
        if not reached:
            continue
        at, took = (
            Percentiles.of(line[stage] for line in reached),
            Percentiles.of(_took(line, stage) for line in reached),
        )
        told[stage] = {"at": at.p50, "at95": at.p95, "took": took.p50, "took95": took.p95}
    return {stage: {name: round(ms, 2) for name, ms in each.items()} for stage, each in told.items()}


def _took(line: Mapping[str, float], stage: str) -> float:
    passed = list(line)
    at = passed.index(stage)
    return line[stage] - (line[passed[at - 1]] if at else 0.0)


def step_spread(steps: Sequence[Step]) -> dict[str, float]:
    """What the host spends on a step and how long steps are apart, ms; rows of a step on average and at most."""
    steps = [step for step in steps if step.launched_s and step.outcome_s]
    if len(steps) < 2:
        return {}
    outcomes = [1000 * (b.outcome_s - a.outcome_s) for a, b in pairwise(steps)]
    apart = Percentiles.of(gap for gap, step in zip(outcomes, steps[1:], strict=False) if gap < 1000 and step.rows)
    rows = Percentiles.of(float(step.rows) for step in steps)
    spans = {
        "schedule": Percentiles.of(1000 * (step.ordered_s - step.begun_s) for step in steps).p50,
        "backbone": Percentiles.of(1000 * (step.backbone_s - step.ordered_s) for step in steps).p50,
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
    """Measure alone and at `rates` utterances a second, each for RATE_S; `report` has all so far each time.

    `options`: of `SynthesizerOptions`, besides those of a GPU.
    """
    # Functions are sent to the engine's process, which takes none otherwise.
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
    """Utterances that are begun, and of each the moments that `stages_ms` needs."""

    def __init__(self, synthesizer: QwenSynthesizer) -> None:
        self._synthesizer = synthesizer
        self._heard: list[tuple[float, float, int, int]] = []

    async def one_by_one(self, count: int) -> None:
        for _ in range(count):
            await self._hear(SHORT_FRAMES)
            # As a request a second would find it: at rest.
            await asyncio.sleep(0.05)

    async def at(self, rate_per_s: float, seconds: float) -> None:
        await arrive(lambda: self._hear(FIRST_FRAMES), rate_per_s, seconds)

    async def figures(self) -> Figures:
        rows, steps = pickle.loads(await self._synthesizer.talker.ask_worker(take_timestamps))
        rows = sorted(rows + TIMESTAMPS.take()[0])
        timelines = [stages_ms(rows, *heard) for heard in self._heard]
        return {"count": len(timelines), "stages": spread_of(timelines), "steps": step_spread(steps)}

    async def _hear(self, frames: int) -> None:
        """One utterance at a listener's pace."""
        speech = self._synthesizer.open(SpeechRequest(self._synthesizer.default_voice, max_frames=frames))
        began_s = time.monotonic()
        speech.push_text(SENTENCES[0])
        speech.end()
        playing = asyncio.create_task(play(speech))
        try:
            async for chunk in speech:
                if not chunk.first_frame and speech._generation is not None:
                    # The stream of a codec, whichever it is, has a slot.
                    slot: int = speech._codec.slot  # type: ignore[attr-defined]
                    self._heard.append((began_s, time.monotonic(), speech._generation.epoch, slot))
        finally:
            playing.cancel()
            await speech.aclose()
