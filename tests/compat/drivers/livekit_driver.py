"""LiveKit's plugins as an agent session uses them: one TTS, a stream for each utterance."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import aiohttp
from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT
from livekit.plugins import cartesia, deepgram, elevenlabs
from remote import DriverClient, DriverReport, pieces, serve
from voxgate.integrations import livekit as voxgate

VOICE = "heart"


def make_tts(kind: str, url: str, session: aiohttp.ClientSession) -> Any:
    if kind.startswith("elevenlabs"):
        # Without a choice LiveKit asks for mp3_22050_32.
        chosen: dict[str, Any] = {"encoding": "opus_48000_64"} if kind.endswith("opus") else {}
        return elevenlabs.TTS(voice_id=VOICE, api_key="any", base_url=f"{url}/v1", http_session=session, **chosen)
    if kind == "cartesia":
        return cartesia.TTS(voice=VOICE, api_key="any", base_url=url, http_session=session)
    if kind == "voxgate":
        return voxgate.TTS(url=url, voice=VOICE)
    if kind == "deepgram2":
        return deepgram.TTSv2(model=VOICE, api_key="any", base_url=f"{url}/v2/speak", http_session=session)
    return deepgram.TTS(model=VOICE, api_key="any", base_url=f"{url}/v1/speak", http_session=session)


class LiveKit(DriverClient):
    async def open(self) -> None:
        self.http = aiohttp.ClientSession()
        self.tts = make_tts(sys.argv[2], self.url, self.http)

    async def say(self, heard: DriverReport, text: str, stop_after_s: float | None) -> None:
        heard.rate_hz = self.tts.sample_rate
        async with self.tts.stream() as stream:
            for piece in pieces(text):
                stream.push_text(piece)
            stream.end_input()
            async for event in stream:
                heard.add(bytes(event.frame.data))
                for word in event.frame.userdata.get(USERDATA_TIMED_TRANSCRIPT, ()):
                    heard.words.append((str(word), float(word.start_time)))
                if stop_after_s is not None and heard.audio_s >= stop_after_s:
                    break
            heard.finished = True
        if stop_after_s is not None:
            await asyncio.sleep(0.2)

    async def close(self) -> None:
        await self.tts.aclose()
        await self.http.close()


if __name__ == "__main__":
    serve(LiveKit)
