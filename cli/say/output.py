"""Where the speech of `voxgate say` goes: a player or a file, with its words on the terminal."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from voxgate.client import (
    Audio,
    AudioFormat,
    ClientError,
    Interrupted,
    Notice,
    Queued,
    SpeechError,
    Started,
    Utterance,
    Words,
)
from voxgate.client.utterance import MESSAGE_REFUSED_CODES

from ..failure import fail
from ..player import Player, PlayerFailed
from .captions import Captions
from .sound_file import SoundFile


@dataclass(slots=True)
class SpokenPart:
    """One utterance of the speech, and where its audio begins there."""

    utterance: Utterance
    start_ms: int
    text: str = ""


class SpeechOutput:
    """Sends the audio of consecutive utterances to a player or to a file, and prints words as they are played."""

    def __init__(self, output: Path | None, player_name: str | None, *, quiet: bool) -> None:
        self.interrupted = False
        self.text_refused = False
        """Whether the gateway has refused some of the text."""
        self._parts: list[SpokenPart] = []
        self._output = output
        self._player_name = player_name
        self._player: Player | None = None
        self._file: SoundFile | None = None
        self._captions = Captions(sys.stdout)
        self._quiet = quiet
        self._audio_ms = 0.0
        """Audio received, in all utterances."""
        self._first_text_s: float | None = None
        self._first_audio_s: float | None = None

    async def speak(self, utterance: Utterance, fragments: AsyncIterator[str]) -> None:
        """Sends the text, and plays or writes the audio; returns when the last of it was received.

        Raises ClientError, PlayerFailed, and OSError for a file that cannot be written, and the errors of the text.
        """
        part = SpokenPart(utterance, int(self._audio_ms))
        self._parts.append(part)
        self._captions.begin_utterance()
        feeding = asyncio.create_task(self._feed(part, fragments), name="text")
        try:
            await self._receive(part)
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)

    async def _feed(self, part: SpokenPart, fragments: AsyncIterator[str]) -> None:
        """Sends the text. A failure is raised by `_receive`, not here."""
        with suppress(ClientError):
            await part.utterance.feed(self._noted(part, fragments))

    async def _noted(self, part: SpokenPart, fragments: AsyncIterator[str]) -> AsyncIterator[str]:
        async for fragment in fragments:
            if self._first_text_s is None:
                self._first_text_s = time.monotonic()
            part.text += fragment
            self._captions.add_text(fragment)
            yield fragment

    async def _receive(self, part: SpokenPart) -> None:
        async for event in part.utterance.events():
            match event:
                case Queued(position=position):
                    self._print(f"waiting, position {position} in the queue")
                case Started():
                    await self._open(event.format)
                case Audio() if event.payload:
                    await self._output_audio(event.payload)
                    self._audio_ms += 1000 * event.samples / part.utterance.format.sample_rate
                case Words() if self._player is not None:
                    self._captions.schedule(event.words, self._player.played_ms() - part.start_ms)
                case Notice() if event.code in MESSAGE_REFUSED_CODES and not self.interrupted:
                    self.text_refused = True
                    fail("say", f"text was not spoken: {event.message}")
                case Notice():
                    self._print(event.message)
                case _:
                    pass

    async def finish(self) -> None:
        """Waits until everything has been played, and prints how much it was. Raises PlayerFailed."""
        if self._player is not None and not self.interrupted:
            await self._unless_interrupted(self._player.finish())
        self._captions.finish(played_all=not self.interrupted)
        if ends := [done for part in self._parts if (done := part.utterance.done) is not None]:
            target = f", {self._output}" if self._output else ""
            first = f", first audio after {1000 * self._first_audio_s:.0f} ms" if self._first_audio_s else ""
            self._print(f"{sum(done.audio_ms for done in ends) / 1000:.1f} s of speech{first}{target}")

    async def interrupt(self, waiting: str) -> None:
        """Stops playback and the utterances, then prints which text was spoken and which was not.

        `waiting` is text that no utterance has.
        """
        self.interrupted = True
        position_ms = self._player.played_ms() if self._player else 0
        if self._player is not None:
            await self._player.stop()
        spoken, unspoken, answered = "", "", False
        for number, part in enumerate(self._parts):
            if number + 1 < len(self._parts) and position_ms >= self._parts[number + 1].start_ms:
                spoken += part.text
                continue
            try:
                answer: Interrupted = await part.utterance.interrupt(max(0, position_ms - part.start_ms))
            except SpeechError:
                spoken += part.text  # the utterance had already ended
                continue
            answered = True
            spoken += answer.text_spoken
            unspoken += answer.text_remaining
        self._captions.finish(played_all=False)
        if answered or waiting:
            print(f"\nspoken: {spoken}\nnot spoken: {unspoken}{waiting}", file=sys.stderr)

    async def close(self) -> None:
        if self._player is not None:
            await self._player.stop()
        if self._file is not None:
            self._file.close()

    async def _open(self, format: AudioFormat) -> None:
        if self._player_name is not None and self._player is None:
            self._player = await Player.open(self._player_name, format.sample_rate)
        if self._output is not None and self._file is None:
            self._file = SoundFile(self._output, format)

    async def _output_audio(self, payload: bytes) -> None:
        if self._first_audio_s is None and self._first_text_s is not None:
            self._first_audio_s = time.monotonic() - self._first_text_s
        if self._file is not None:
            self._file.write(payload)
        if self._player is not None:
            await self._unless_interrupted(self._player.play(payload))

    async def _unless_interrupted(self, playing: Awaitable[None]) -> None:
        """Ignores the failure of a player that an interrupt has stopped."""
        try:
            await playing
        except PlayerFailed:
            if not self.interrupted:
                raise

    def _print(self, text: str) -> None:
        if not self._quiet:
            print(text, file=sys.stderr)
