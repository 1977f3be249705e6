"""Drives a client library for tests in another process: commands as lines of JSON in, answers out.

Runs in the environment of the client, so it imports the standard library only. A driver subclasses `DriverClient`
and calls `serve`.
"""

from __future__ import annotations

import array
import asyncio
import json
import os
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class DriverReport:
    """What came of one utterance, as the library's own user sees it."""

    rate_hz: int = 24_000
    pcm: bytearray = field(default_factory=bytearray)
    """s16le mono."""
    words: list[tuple[str, float]] = field(default_factory=list)
    """With the second each begins at, where the library tells."""
    errors: list[str] = field(default_factory=list)
    first_audio_s: float | None = None
    finished: bool = False
    """The library said by itself that the speech is over."""
    more: dict[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def add(self, pcm: bytes) -> None:
        if pcm and self.first_audio_s is None:
            self.first_audio_s = time.monotonic() - self.began
        self.pcm += pcm

    @property
    def audio_s(self) -> float:
        return len(self.pcm) / 2 / self.rate_hz

    def report(self) -> dict[str, Any]:
        samples = array.array("h", bytes(self.pcm[: len(self.pcm) // 2 * 2]))
        loud = max(map(abs, samples), default=0) / 32768
        fields = {name: value for name, value in asdict(self).items() if name not in ("pcm", "began")}
        return fields | {"audio_s": self.audio_s, "loudest": loud, "took_s": time.monotonic() - self.began}


class DriverClient:
    """One instance of a library's client, used for one utterance after another."""

    def __init__(self, url: str) -> None:
        """`url` is the gateway's http(s) address."""
        self.url = url

    async def open(self) -> None:
        """Make the instance; it may connect now or later."""

    async def say(self, heard: DriverReport, text: str, stop_after_s: float | None) -> None:
        """Speak `text` into `heard`; with `stop_after_s`, barge in once so much audio was heard."""
        raise NotImplementedError

    async def close(self) -> None:
        """End the instance as its users would."""


def pieces(text: str) -> list[str]:
    """As a language model would send it."""
    return [word if not n else " " + word for n, word in enumerate(text.split(" "))]


async def _command(client: DriverClient, command: dict[str, Any]) -> dict[str, Any]:
    if command["do"] == "open":
        await client.open()
        return {}
    if command["do"] == "close":
        await client.close()
        return {}
    heard = DriverReport()
    try:
        async with asyncio.timeout(command["within_s"]):
            await client.say(heard, command["text"], command.get("stop_after_s"))
    except TimeoutError:
        heard.errors.append("timeout: the library neither finished nor failed")
    except Exception as error:
        heard.errors.append(f"{type(error).__name__}: {error}"[:500])
    return heard.report()


async def _serve(client: DriverClient) -> None:
    # Libraries print; the answers keep standard output for themselves.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        try:
            answer = await _command(client, json.loads(line))
        except Exception as error:
            traceback.print_exc()
            answer = {"failed": f"{type(error).__name__}: {error}"[:500]}
        answers.write(json.dumps(answer) + "\n")


def serve(make: Any) -> None:
    """Run as the driver of the client that `make(url)` gives; the address comes as the only argument."""

    async def main() -> None:
        await _serve(make(sys.argv[1]))

    asyncio.run(main())
