"""Pipecat's services in a pipeline of their own, with a listener at its end in place of a transport."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from pipecat.frames.frames import (
    BotStartedSpeakingFrame,
    BotStoppedSpeakingFrame,
    EndFrame,
    ErrorFrame,
    Frame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    StartFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.cartesia.tts import CartesiaTTSService
from pipecat.services.deepgram.flux.tts import DeepgramFluxTTSService
from pipecat.services.deepgram.tts import DeepgramTTSService
from pipecat.services.elevenlabs.tts import ElevenLabsTTSService
from pipecat.workers.runner import WorkerRunner
from remote import DriverClient, DriverReport, pieces, serve
from voxgate.integrations.pipecat import VoxgateTTSService

RATE_HZ = 24_000
VOICE = "heart"
GIVE_UP_S = 3


def service(kind: str, url: str) -> Any:
    ws = url.replace("http", "ws", 1)
    if kind == "elevenlabs":
        settings = ElevenLabsTTSService.Settings(voice=VOICE)
        return ElevenLabsTTSService(api_key="any", url=ws, sample_rate=RATE_HZ, settings=settings)
    if kind == "cartesia":
        cartesia = CartesiaTTSService.Settings(voice=VOICE)
        return CartesiaTTSService(api_key="any", url=f"{ws}/tts/websocket", sample_rate=RATE_HZ, settings=cartesia)
    if kind == "voxgate":
        native = VoxgateTTSService.Settings(voice=VOICE)
        return VoxgateTTSService(url=ws, sample_rate=RATE_HZ, settings=native)
    if kind == "flux":
        flux = DeepgramFluxTTSService.Settings(voice=VOICE)
        return DeepgramFluxTTSService(api_key="any", url=f"{ws}/v2/speak", sample_rate=RATE_HZ, settings=flux)
    aura = DeepgramTTSService.Settings(voice=VOICE)
    return DeepgramTTSService(api_key="any", base_url=ws, sample_rate=RATE_HZ, settings=aura)


class AudioCollector(FrameProcessor):
    """Stands for the transport: says when the bot speaks and when it has stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: DriverReport | None = None
        self.news = asyncio.Event()
        self.first_pts: int | None = None

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if self.heard is not None:
            await self.hear(self.heard, frame)
        self.news.set()
        await self.push_frame(frame, direction)

    async def hear(self, heard: DriverReport, frame: Frame) -> None:
        match frame:
            case TTSStartedFrame():
                await self.push_frame(BotStartedSpeakingFrame(), FrameDirection.UPSTREAM)
            case TTSAudioRawFrame():
                heard.add(frame.audio)
            case TTSTextFrame():
                if self.first_pts is None:
                    self.first_pts = frame.pts
                at = (frame.pts - self.first_pts) / 1e9 if frame.pts and self.first_pts else 0.0
                heard.words.append((frame.text, at))
            case TTSStoppedFrame():
                heard.finished = True
                await self.push_frame(BotStoppedSpeakingFrame(), FrameDirection.UPSTREAM)


class OutputCollector(FrameProcessor):
    """Stands before the service and hears what goes wrong in it."""

    def __init__(self, listener: AudioCollector) -> None:
        super().__init__()
        self.listener = listener

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        heard = self.listener.heard
        # Once all was heard, a socket that closes is no trouble of this utterance.
        if isinstance(frame, ErrorFrame) and heard is not None and not heard.finished:
            heard.errors.append(frame.error)
            self.listener.news.set()
        await self.push_frame(frame, direction)


class Pipecat(DriverClient):
    async def open(self) -> None:
        self.listener = AudioCollector()
        pipeline = Pipeline([OutputCollector(self.listener), service(sys.argv[2], self.url), self.listener])
        params = PipelineParams(audio_out_sample_rate=RATE_HZ)
        self.worker = PipelineWorker(pipeline, cancel_on_idle_timeout=False, enable_rtvi=False, params=params)
        started = asyncio.Event()

        @self.worker.event_handler("on_pipeline_started")
        async def _(worker: PipelineWorker, frame: StartFrame) -> None:  # noqa: ARG001 - what the event passes
            started.set()

        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(self.worker)
        self.running = asyncio.create_task(runner.run())
        await asyncio.wait_for(started.wait(), 20)

    async def say(self, heard: DriverReport, text: str, stop_after_s: float | None) -> None:
        listener = self.listener
        listener.first_pts, listener.heard = None, heard
        try:
            frames = [LLMFullResponseStartFrame(), *map(LLMTextFrame, pieces(text)), LLMFullResponseEndFrame()]
            await self.worker.queue_frames(frames)
            while not heard.finished:
                if stop_after_s is not None and heard.audio_s >= stop_after_s:
                    await self.worker.queue_frame(InterruptionFrame())
                    await asyncio.sleep(0.5)  # what still came would be heard over the user
                    heard.finished = True
                    return
                listener.news.clear()
                try:
                    # An agent goes on after an error; the service ends the turn, or nothing more comes of it.
                    await asyncio.wait_for(listener.news.wait(), GIVE_UP_S if heard.errors else None)
                except TimeoutError:
                    await listener.push_frame(BotStoppedSpeakingFrame(), FrameDirection.UPSTREAM)
                    return
            await asyncio.sleep(0.3)  # the last words follow the audio
        finally:
            listener.heard = None

    async def close(self) -> None:
        await self.worker.queue_frame(EndFrame())
        await asyncio.wait_for(self.running, 10)


if __name__ == "__main__":
    serve(Pipecat)
