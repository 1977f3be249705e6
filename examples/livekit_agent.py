"""A voice agent on LiveKit that speaks through the gateway by its native protocol.

    pip install "PATH_OF_YOUR_CLONE[livekit]"
    python examples/livekit_agent.py answer.wav "What is the weather like?"

The question is an argument and the answer is written to a file, so that it runs without a LiveKit room; in your
program, pass the room to `session.start`. Replace `answer` by your language model.
"""

from __future__ import annotations

import asyncio
import os
import sys
import wave
from collections.abc import AsyncIterator

from livekit import rtc
from livekit.agents import Agent, AgentSession
from livekit.agents.voice.io import AudioOutput, AudioOutputCapabilities
from voxgate.integrations.livekit import TTS

GATEWAY = os.environ.get("GATEWAY", "http://127.0.0.1:8000")


async def answer(question: str) -> AsyncIterator[str]:
    """Yields an answer token by token, as a language model does."""
    for token in ("You asked: ", question, " I wish I knew, ", "but I only ", "came to speak."):
        yield token


class Recorder(AudioOutput):
    """Writes the audio to a file, faster than real time."""

    def __init__(self, file: wave.Wave_write) -> None:
        super().__init__(label="file", capabilities=AudioOutputCapabilities(pause=False))
        self.file = file
        self.played_s = 0.0

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        if not self.played_s:  # the first frame has the sample rate
            self.file.setparams((1, 2, frame.sample_rate, 0, "NONE", ""))
        self.file.writeframes(frame.data)
        self.played_s += frame.duration

    def flush(self) -> None:
        super().flush()
        self.on_playback_finished(playback_position=self.played_s, interrupted=False)

    def clear_buffer(self) -> None:
        self.on_playback_finished(playback_position=self.played_s, interrupted=True)


async def main(path: str, question: str) -> None:
    speech = TTS(url=GATEWAY, api_key=os.environ.get("KEY"), voice=os.environ.get("VOICE"))
    session = AgentSession(tts=speech, use_tts_aligned_transcript=True)
    with wave.open(path, "wb") as file:
        session.output.audio = Recorder(file)
        await session.start(Agent(instructions="Be brief."))
        await session.say(answer(question))
        await session.aclose()
    await speech.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
