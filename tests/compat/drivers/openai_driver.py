"""The OpenAI SDK: a whole text a request, audio as it is made."""

from __future__ import annotations

from openai import AsyncOpenAI
from remote import DriverClient, DriverReport, serve


class OpenAiDriver(DriverClient):
    async def open(self) -> None:
        self.sdk = AsyncOpenAI(api_key="any", base_url=f"{self.url}/v1", max_retries=0, timeout=30)

    async def say(self, heard: DriverReport, text: str, stop_after_s: float | None) -> None:
        create = self.sdk.audio.speech.with_streaming_response.create
        async with create(model="tts-1", voice="heart", input=text, response_format="pcm") as response:
            async for chunk in response.iter_bytes():
                heard.add(chunk)
                if stop_after_s is not None and heard.audio_s >= stop_after_s:
                    break
        heard.finished = True

    async def close(self) -> None:
        await self.sdk.close()


if __name__ == "__main__":
    serve(OpenAiDriver)
