"""The ElevenLabs SDK, which speaks nothing but TLS: a socket for streamed text, HTTP for whole texts."""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import Iterator

from elevenlabs.client import ElevenLabs
from remote import DriverClient, DriverReport, pieces, serve

VOICE = "heart"


class ElevenLabsDriver(DriverClient):
    async def open(self) -> None:
        self.sdk = ElevenLabs(api_key="any", base_url=self.url, timeout=30)

    async def say(self, heard: DriverReport, text: str, stop_after_s: float | None) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._say, heard, text, stop_after_s)

    def _say(self, heard: DriverReport, text: str, stop_after_s: float | None) -> None:
        for chunk in self._chunks(heard, text):
            heard.add(chunk)
            if stop_after_s is not None and heard.audio_s >= stop_after_s:
                break
        heard.finished = True

    def _chunks(self, heard: DriverReport, text: str) -> Iterator[bytes]:
        if sys.argv[2] == "http":
            for timed in self.sdk.text_to_speech.stream_with_timestamps(VOICE, text=text, output_format="pcm_24000"):
                if timed.alignment is not None:
                    heard.words += _words(timed.alignment.characters, timed.alignment.character_start_times_seconds)
                yield base64.b64decode(timed.audio_base_64)
        else:
            yield from self.sdk.text_to_speech.convert_realtime(
                VOICE, text=iter(pieces(text)), output_format="pcm_24000"
            )


def _words(characters: list[str], starts_s: list[float]) -> list[tuple[str, float]]:
    words: list[tuple[str, float]] = []
    word, at = "", 0.0
    for character, start_s in zip([*characters, " "], [*starts_s, 0.0], strict=True):
        if character.strip():
            word, at = word + character, at if word else start_s
        elif word:
            words.append((word, at))
            word = ""
    return words


if __name__ == "__main__":
    serve(ElevenLabsDriver)
