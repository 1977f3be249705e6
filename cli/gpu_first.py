"""The way of an utterance from its text to its first PCM, stage by stage, in an engine without a socket in front."""

from __future__ import annotations

import asyncio
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..pipeline.qwen_voice import SynthesizerOptions
from ..pipeline.speech import SpeechRequest
from ..pipeline.synthesizer import QwenSynthesizer
from .first_stages import STAMPS, spread_of, stages_ms, step_spread, take_stamps, watch_engine, watch_gateway
from .gpu_engine import CACHE_BYTES, FIRST_FRAMES, SHORT_FRAMES, arrive, play
from .load.text import SENTENCES

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
        await Arrivals(synthesizer).at(20, WARM_UP_S)
        watch_gateway(synthesizer.talker._process.llm)
        await synthesizer.talker.ask_worker(watch_engine)
        alone = Arrivals(synthesizer)
        await alone.one_by_one(ALONE)
        figures["alone"] = await alone.figures()
        report(figures)
        for rate in rates:
            arrivals = Arrivals(synthesizer)
            await arrivals.at(rate, RATE_S)
            figures[f"{rate:g}/s"] = await arrivals.figures()
            report(figures)
    finally:
        await synthesizer.close()


class Arrivals:
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
        rows, steps = pickle.loads(await self._synthesizer.talker.ask_worker(take_stamps))
        rows = sorted(rows + STAMPS.take()[0])
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
