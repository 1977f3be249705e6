"""A voice agent on Pipecat that speaks through the gateway by its native protocol.

    pip install "PATH_OF_YOUR_CLONE[pipecat]"
    python examples/pipecat_agent.py answer.wav "What is the weather like?"

The question is an argument and the answer is written to a file, so that it runs without audio devices; in your program,
put a transport around the pipeline. Replace `Model` by the service of your language model.
"""

from __future__ import annotations

import asyncio
import os
import sys
import wave

from pipecat.frames.frames import (
    BotStoppedSpeakingFrame,
    EndFrame,
    Frame,
    InputTextRawFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.workers.runner import WorkerRunner
from voxgate.integrations.pipecat import VoxgateTTSService

GATEWAY = os.environ.get("GATEWAY", "ws://127.0.0.1:8000")
RATE_HZ = 24_000


class Model(FrameProcessor):
    """Answers every question with the same words, token by token."""

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, InputTextRawFrame):
            await self.push_frame(LLMFullResponseStartFrame())
            for token in ("You asked: ", frame.text, " I wish I knew, ", "but I only ", "came to speak."):
                await self.push_frame(LLMTextFrame(token))
            await self.push_frame(LLMFullResponseEndFrame())
        else:
            await self.push_frame(frame, direction)


class Recorder(FrameProcessor):
    """Writes the audio to a file and prints the words as they are spoken."""

    def __init__(self, file: wave.Wave_write) -> None:
        super().__init__()
        self.file = file
        self.answered = asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSAudioRawFrame):
            self.file.writeframes(frame.audio)
        elif isinstance(frame, TTSTextFrame):
            print(frame.text, end=" ", flush=True)
        elif isinstance(frame, TTSStoppedFrame):
            await self.push_frame(BotStoppedSpeakingFrame(), FrameDirection.UPSTREAM)
            self.answered.set()
        await self.push_frame(frame, direction)


async def main(path: str, question: str) -> None:
    settings = VoxgateTTSService.Settings(voice=os.environ.get("VOICE"))
    tts = VoxgateTTSService(url=GATEWAY, api_key=os.environ.get("KEY"), settings=settings)
    with wave.open(path, "wb") as file:
        file.setparams((1, 2, RATE_HZ, 0, "NONE", ""))
        recorder = Recorder(file)
        worker = PipelineWorker(
            Pipeline([Model(), tts, recorder]), params=PipelineParams(audio_out_sample_rate=RATE_HZ)
        )

        async def converse() -> None:
            await worker.queue_frame(InputTextRawFrame(text=question))
            await recorder.answered.wait()
            await worker.queue_frame(EndFrame())

        runner = WorkerRunner()
        await runner.add_workers(worker)
        await asyncio.gather(runner.run(), converse())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
