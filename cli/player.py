"""Plays PCM through whichever audio player is installed."""

from __future__ import annotations

import asyncio
import shutil
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress

COMMANDS = {
    "paplay": "--raw --format=s16le --rate={rate} --channels=1 --latency-msec=60",
    "aplay": "-q -t raw -f S16_LE -r {rate} -c 1",
    "pw-cat": "--playback --raw --format s16 --rate {rate} --channels 1 -",
    "ffplay": "-nodisp -autoexit -loglevel error -f s16le -ar {rate} -i -",
    "play": "-q -t raw -e signed -b 16 -r {rate} -c 1 -",
}
"""Arguments with which each player reads s16le mono samples at `rate` Hz from its standard input."""


class PlayerFailed(Exception):
    """The player ended before the audio did; the text is the first line that it printed."""


def find_player() -> str | None:
    """The first of `COMMANDS` that is installed."""
    return next((name for name in COMMANDS if shutil.which(name)), None)


class Player:
    """A running player process. Times are the event loop's, in seconds."""

    def __init__(self, name: str, sample_rate_hz: int, process: Process) -> None:
        self.name = name
        self._sample_rate_hz = sample_rate_hz
        self._process = process
        self._samples = 0
        self._started_s: float | None = None

    @classmethod
    async def open(cls, name: str, sample_rate_hz: int) -> Player:
        """Starts the player `name`, one of `COMMANDS`. Raises OSError when it cannot be run."""
        process = await asyncio.create_subprocess_exec(
            name,
            *COMMANDS[name].format(rate=sample_rate_hz).split(),
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=PIPE,
            start_new_session=True,  # Ctrl-C must reach the gateway before playback stops
        )
        return cls(name, sample_rate_hz, process)

    async def play(self, pcm: bytes) -> None:
        """Writes s16le mono samples to the player; waits while its pipe is full. Raises PlayerFailed."""
        assert self._process.stdin is not None
        now_s = asyncio.get_running_loop().time()
        if self._started_s is None:
            self._started_s = now_s
        # After all of it was played, the player has waited for more.
        self._started_s = max(self._started_s, now_s - self._samples / self._sample_rate_hz)
        self._samples += len(pcm) // 2
        try:
            self._process.stdin.write(pcm)
            await self._process.stdin.drain()
        except ConnectionError:
            raise PlayerFailed(await self._error_text()) from None

    def played_ms(self) -> int:
        """The position of playback in milliseconds, without the player's own latency."""
        if self._started_s is None:
            return 0
        elapsed_s = asyncio.get_running_loop().time() - self._started_s
        return int(1000 * min(elapsed_s, self._samples / self._sample_rate_hz))

    async def finish(self) -> None:
        """Waits until everything has been played. Raises PlayerFailed.

        Cancelling it leaves the player running; call `stop` then.
        """
        assert self._process.stdin is not None
        self._process.stdin.close()
        if await self._process.wait() != 0:
            raise PlayerFailed(await self._error_text())

    async def stop(self) -> None:
        """Ends playback at once."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def _error_text(self) -> str:
        assert self._process.stderr is not None
        text = (await self._process.stderr.read(4096)).decode(errors="replace").strip()
        return f"{self.name} failed: {text.splitlines()[0] if text else 'no reason given'}"
