"""Part `aborts` of `voxgate bench gpu`: a thousand utterances are stopped at random while others speak and are decoded.

What is checked: every utterance that is not stopped has all its samples, and utterances that are spoken alone have the
same codes before and afterwards. Alone, because in bfloat16 codes depend on the number of rows of a step.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from voxgate.codecs.pcm import FRAME_SAMPLES
from voxgate.loadtest.virtual_user import SENTENCES
from voxgate.pipeline.interface import Speech, SpeechRequest
from voxgate.pipeline.synthesizer import QwenSynthesizer
from voxgate.pipeline.talker.engine import TalkerEngine
from voxgate.pipeline.talker.generation import Sampling
from voxgate.pipeline.talker.prompt import custom_voice_prompt
from voxgate.pipeline.voice_model import SynthesizerOptions

from .engine import CACHE_BYTES

ABORTS, SPEAKERS = 1000, 16
"""Utterances that are stopped, and utterances at a time: as many as a tile of the persistent predictor has rows."""
FRAMES = range(8, 49)
"""Lengths of the utterances, of which about half are stopped before."""
ALONE, ALONE_FRAMES = 6, 40
"""Utterances that are compared, and their length."""
DEADLINE_S, SETTLE_S = 120.0, 0.5


@dataclass(slots=True)
class AbortFigures:
    """`short`: utterances that ended by themselves with fewer frames than they have; `changed`: of ALONE."""

    aborted: int = 0
    completed: int = 0
    short: int = 0
    changed: int = 0
    frames: int = 0
    seconds: float = 0.0
    error: str | None = None


async def abort_figures(folder: Path) -> dict[str, Any]:
    """Speaks and stops utterances of an engine with the checkpoint in `folder`, for at most DEADLINE_S."""
    # Slots also for utterances whose stop is not confirmed yet. No prompts are computed beside other speech, because
    # they round otherwise.
    options = SynthesizerOptions(slots=2 * SPEAKERS, device="cuda", kv_cache_bytes=CACHE_BYTES, prefilled_prompts=0)
    synthesizer, figures = QwenSynthesizer(folder, options), AbortFigures()
    await synthesizer.start()
    try:
        before = [await codes_alone(synthesizer.talker, seed) for seed in range(ALONE)]
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as speaking:
                for number in range(SPEAKERS):
                    speaking.create_task(keep_speaking(synthesizer, random.Random(number), figures))
        except* Exception as group:
            figures.error = repr(group.exceptions[0])
        figures.seconds = round(time.monotonic() - began_s, 1)
        await asyncio.sleep(SETTLE_S)
        after = [await codes_alone(synthesizer.talker, seed) for seed in range(ALONE)]
        figures.changed = sum(one != other for one, other in zip(before, after, strict=True))
    finally:
        await synthesizer.close()
    return asdict(figures)


async def keep_speaking(synthesizer: QwenSynthesizer, chance: random.Random, figures: AbortFigures) -> None:
    """Speaks one utterance after the other, and stops about half of them, until ABORTS have been stopped in all."""
    while figures.aborted < ABORTS:
        frames = chance.choice(FRAMES)
        speech = synthesizer.open(SpeechRequest(synthesizer.default_voice, max_frames=frames, paced=False))
        stop_at = chance.randrange(2 * frames)
        heard = await hear(speech, stop_at)
        figures.frames += heard
        if heard > stop_at:
            figures.aborted += 1
        else:
            figures.completed += 1
            figures.short += heard != frames


async def hear(speech: Speech, stop_at: int) -> int:
    """Frames that were heard of an utterance, which is stopped behind `stop_at` of them."""
    speech.push_text(SENTENCES[0])
    speech.end()
    samples = 0
    try:
        async for chunk in speech:
            samples += len(chunk.pcm)
            speech.advance(samples // FRAME_SAMPLES)
            if samples > stop_at * FRAME_SAMPLES:
                break
    finally:
        await speech.aclose()
    return samples // FRAME_SAMPLES


async def codes_alone(engine: TalkerEngine, seed: int) -> list[list[int]]:
    """The codes of an utterance that is spoken alone."""
    generation = engine.open()
    voice = next(iter(engine.checkpoint.speakers))
    prompt = custom_voice_prompt(engine.checkpoint, voice, "auto")
    generation.prepare(prompt, Sampling(0.9, 50, 1.0, 1.05, 0.9, 50, 1.0, seed), ALONE_FRAMES)
    generation.grant(10 * ALONE_FRAMES)
    generation.feed([100 + seed] * 20)
    generation.close_text()
    try:
        return [frame.tolist() async for frame in generation]
    finally:
        await generation.aclose()
