"""The Deepgram SDK: one socket for all utterances, text piece by piece."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from typing import Any

from deepgram import AsyncDeepgramClient
from deepgram.environment import DeepgramClientEnvironment
from deepgram.speak.v1.types.speak_v1text import SpeakV1Text
from deepgram.speak.v2.types.speak_v2interrupt import SpeakV2Interrupt
from deepgram.speak.v2.types.speak_v2speak import SpeakV2Speak
from remote import DriverClient, DriverReport, pieces, serve

VOICE = "heart"
END = {"1": "Flushed", "2": "SpeechMetadata"}
STOPPED = {"1": "Cleared", "2": "SpeechInterrupted"}


class DeepgramDriver(DriverClient):
    async def open(self) -> None:
        ws = self.url.replace("http", "ws", 1)
        environment = DeepgramClientEnvironment(base=self.url, production=ws, agent=ws, agent_rest=self.url)
        self.sdk = AsyncDeepgramClient(api_key="any", environment=environment)
        self.version = sys.argv[2]
        self.socket: Any = None
        self.stack = AsyncExitStack()
        self.session_ms = 0.0
        """DriverReport in earlier turns: the offset of an interrupt counts from the begin of the session."""

    async def say(self, heard: DriverReport, text: str, stop_after_s: float | None) -> None:
        try:
            await self._say(heard, text, stop_after_s)
        except BaseException:
            # As after any lost socket, the next utterance connects again.
            stack, self.socket, self.stack = self.stack, None, AsyncExitStack()
            self.session_ms = 0.0
            await stack.aclose()
            raise
        self.session_ms += 1000 * heard.audio_s

    async def _say(self, heard: DriverReport, text: str, stop_after_s: float | None) -> None:
        if self.socket is None:
            speak = self.sdk.speak.v1 if self.version == "1" else self.sdk.speak.v2
            self.socket = await self.stack.enter_async_context(
                speak.connect(model=VOICE, encoding="linear16", sample_rate="24000")
            )
        for piece in pieces(text):
            if self.version == "1":
                await self.socket.send_text(SpeakV1Text(type="Speak", text=piece))
            else:
                await self.socket.send_speak(SpeakV2Speak(type="Speak", text=piece))
        await self.socket.send_flush()
        stopping = False
        while True:
            message = await self.socket.recv()
            if isinstance(message, bytes):
                if not stopping:
                    heard.add(message)
                if stop_after_s is not None and heard.audio_s >= stop_after_s and not stopping:
                    stopping = True
                    await self._stop(heard)
                continue
            kind = message.type
            if kind == "Error":
                heard.errors.append(str(message))
            elif kind == "Warning":
                heard.more.setdefault("warnings", []).append(str(message))
            elif kind == STOPPED[self.version] and stopping:
                heard.more["stopped"] = message.dict()
                break
            elif kind == END[self.version] and not stopping:
                heard.more["end"] = message.dict()
                break
        heard.finished = True

    async def _stop(self, heard: DriverReport) -> None:
        if self.version == "1":
            await self.socket.send_clear()
        else:
            offset = {"type": "time_ms", "value": round(self.session_ms + 1000 * heard.audio_s)}
            await self.socket.send_interrupt(SpeakV2Interrupt(type="Interrupt", playback_offset=offset))

    async def close(self) -> None:
        if self.socket is not None:
            await self.socket.send_close()
            await asyncio.sleep(0.1)
        await self.stack.aclose()


if __name__ == "__main__":
    serve(DeepgramDriver)
