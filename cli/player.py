"""Sound out of the machine, through whichever audio player is installed."""

from __future__ import annotations

import asyncio
import shutil
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from contextlib import suppress

COMMANDS: dict[str, Callable[[int], list[str]]] = {
    "paplay": lambda hz: ["--raw", "--format=s16le", f"--rate={hz}", "--channels=1", "--latency-msec=60"],
    "aplay": lambda hz: ["-q", "-t", "raw", "-f", "S16_LE", "-r", str(hz), "-c", "1"],
    "pw-cat": lambda hz: [
        "--playback",
        "--raw",
        "--format",
        "s16",
        "--rate",
        str(hz),
        "--channels",
        "1",
        "-",
    ],
    "ffplay": lambda hz: [
        "-nodisp",
        "-autoexit",
        "-loglevel",
        "error",
        "-f",
        "s16le",
        "-ar",
        str(hz),
        "-i",
        "-",
    ],
    "play": lambda hz: ["-q", "-t", "raw", "-e", "signed", "-b", "16", "-r", str(hz), "-c", "1", "-"],
}
"""How each player takes s16le mono samples from its standard input."""


class PlayerFailed(Exception):
    """The player ended early; the text is its own complaint."""


def find_player() -> str | None:
    """The first player that is installed."""
    return next((name for name in COMMANDS if shutil.which(name)), None)


class Player:
    """A running player. Times are the event loop's, in seconds."""

    def __init__(self, name: str, sample_rate_hz: int, process: Process) -> None:
        self.name = name
        self._sample_rate_hz = sample_rate_hz
        self._process = process
        self._samples = 0
        self._began: float | None = None

    @classmethod
    async def open(cls, name: str, sample_rate_hz: int) -> Player:
        # Its own process group: Ctrl-C must reach the gateway before the sound stops.
        process = await asyncio.create_subprocess_exec(
            name,
            *COMMANDS[name](sample_rate_hz),
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=PIPE,
            start_new_session=True,
        )
        return cls(name, sample_rate_hz, process)

    async def play(self, pcm: bytes) -> None:
        """Hand samples to the player; waits while its pipe is full. Raises PlayerFailed."""
        assert self._process.stdin is not None
        if self._began is None:
            self._began = asyncio.get_running_loop().time()
        self._samples += len(pcm) // 2
        try:
            self._process.stdin.write(pcm)
            await self._process.stdin.drain()
        except ConnectionError:
            raise PlayerFailed(await self._complaint()) from None

    def played_ms(self) -> int:
        """How much was heard by now, the player's own delay not counted."""
        if self._began is None:
            return 0
        elapsed_s = asyncio.get_running_loop().time() - self._began
        return int(1000 * min(elapsed_s, self._samples / self._sample_rate_hz))

    async def finish(self) -> None:
        """Play to the end. Cancelling leaves it playing; then call `stop`. Raises PlayerFailed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if await self._process.wait() != 0:
            raise PlayerFailed(await self._complaint())

    async def stop(self) -> None:
        """Silence now."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def _complaint(self) -> str:
        assert self._process.stderr is not None
        text = (await self._process.stderr.read(4096)).decode(errors="replace").strip()
        return f"{self.name} cannot play: {text.splitlines()[0] if text else 'it gave no reason'}"
