"""`voxgate say`: text from the arguments or from standard input, spoken while it is still being written."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterable, Awaitable, Iterable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from ..client import (
    Audio,
    AudioFormat,
    ClientError,
    Interrupted,
    Notice,
    Queued,
    Refused,
    SpeechError,
    Started,
    Unreachable,
    Utterance,
    Words,
    connect,
)
from .captions import Captions
from .player import Player, PlayerFailed, find_player
from .reach import add_gateway_flags, nobody_at, refused_by_it, tls_context
from .sound_file import SoundFile, format_for
from .typed import is_terminal, typed

EPILOG = """examples:
  voxgate say "Good morning."
  voxgate say                              speaks while you type; Ctrl-D ends, Ctrl-C interrupts
  llm "tell me a story" | voxgate say      speaks while a language model writes
  voxgate say --output hello.wav "Hello."
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("text", nargs="*", help="what to say; without it, standard input is spoken as it comes")
    parser.add_argument("--voice", help="a name from 'voxgate voices'")
    parser.add_argument("--language", help="the language of the text (default: auto)")
    parser.add_argument("--instructions", help="how to say it, for voices that take instructions")
    parser.add_argument("--normalise", action="store_true", default=None, help="say numbers, dates, money in words")
    parser.add_argument(
        "--layout",
        choices=("streaming", "non_streaming"),
        help="speak along with the text (default), or read all of it first",
    )
    parser.add_argument("--trim-silence", action="store_true", default=None, help="cut off silence before the speech")
    parser.add_argument("--seed", type=int, metavar="N", help="repeat an utterance exactly")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="write a .wav, .mp3, .ogg or .opus file as fast as it is made; - for WAV to standard output",
    )
    add_gateway_flags(parser)
    parser.add_argument("--quiet", action="store_true", help="print neither words nor times")


def run(parsed: argparse.Namespace) -> int:
    try:
        format = AudioFormat() if parsed.output is None else format_for(parsed.output)
    except ValueError as error:
        return _complain(str(error))
    player = None if parsed.output else find_player()
    if parsed.output is None and player is None:
        return _complain("no audio player found: install one, for example 'apt install alsa-utils', or use --output")
    try:
        return asyncio.run(_say(parsed, player, format))
    except Unreachable:
        return _complain(nobody_at(parsed.url))
    except Refused as refused:
        wait = f", try again in {refused.retry_after_ms / 1000:.1f} s" if refused.retry_after_ms else ""
        return _complain(refused_by_it(refused.status, refused.message) + wait)
    except OSError as error:
        return _complain(f"{error.filename or parsed.output}: {error.strerror or error}")
    except (ClientError, PlayerFailed) as error:
        return _complain(str(error))


async def _say(parsed: argparse.Namespace, player_name: str | None, format: AudioFormat) -> int:
    text: Iterable[str] | AsyncIterable[str] = [" ".join(parsed.text)] if parsed.text else typed()
    if not parsed.text and is_terminal() and not parsed.quiet:
        print("Type; it is spoken as you go. Ctrl-D ends, Ctrl-C interrupts.", file=sys.stderr)
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(connect(parsed.url, key=parsed.key, tls=tls_context(parsed)))
        utterance = await stack.enter_async_context(
            session.utterance(
                voice=parsed.voice,
                language=parsed.language,
                instructions=parsed.instructions,
                layout=parsed.layout,
                trim_silence=parsed.trim_silence,
                normalise=parsed.normalise,
                seed=parsed.seed,
                format=format,
                words=not parsed.quiet and player_name is not None,
                pacing="playback" if player_name else "none",
            )
        )
        speech = Speech(utterance, parsed.output, player_name, quiet=parsed.quiet)
        feeding = asyncio.create_task(speech.feed(text), name="text")
        listening = asyncio.create_task(speech.listen(), name="speech")
        loop = asyncio.get_running_loop()
        stopping: list[asyncio.Task[None]] = []

        def interrupt() -> None:
            loop.remove_signal_handler(signal.SIGINT)  # a second Ctrl-C ends the command at once
            stopping.append(loop.create_task(speech.interrupt(), name="interrupt"))

        loop.add_signal_handler(signal.SIGINT, interrupt)
        try:
            await listening
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, *stopping, return_exceptions=True)
            await speech.close()
        return 130 if stopping else 0


class Speech:
    """One utterance with its way out: a player or a file."""

    def __init__(self, utterance: Utterance, output: Path | None, player_name: str | None, *, quiet: bool) -> None:
        self._utterance = utterance
        self._output = output
        self._player_name = player_name
        self._player: Player | None = None
        self._file: SoundFile | None = None
        self._captions = Captions(sys.stdout)
        self._quiet = quiet
        self._fed_at: float | None = None
        self._first_audio_s: float | None = None
        self._stopped = False

    async def feed(self, fragments: Iterable[str] | AsyncIterable[str]) -> None:
        async def noted() -> AsyncIterable[str]:
            if isinstance(fragments, AsyncIterable):
                async for fragment in fragments:
                    yield self._note(fragment)
            else:
                for fragment in fragments:
                    yield self._note(fragment)

        # A failure has reached the listener as well, and is reported there.
        with suppress(ClientError):
            await self._utterance.feed(noted())

    def _note(self, fragment: str) -> str:
        if self._fed_at is None:
            self._fed_at = time.monotonic()
        self._captions.add_text(fragment)
        return fragment

    async def listen(self) -> None:
        """Play or write everything; returns when the last of it was heard."""
        async for event in self._utterance.events():
            match event:
                case Queued(position=position):
                    self._tell(f"waiting, number {position} in the queue")
                case Started():
                    await self._open(event.format)
                case Audio() if event.payload:
                    await self._hear(event.payload)
                case Words() if self._player is not None:
                    self._captions.schedule(event.words, self._player.played_ms())
                case Notice():
                    self._tell(event.message)
                case _:
                    pass
        if self._player is not None and not self._stopped:
            await self._to_the_player(self._player.finish())
        self._captions.finish(heard_all=not self._stopped)
        if (done := self._utterance.done) is not None:
            target = f", {self._output}" if self._output else ""
            first = f", first sound after {1000 * self._first_audio_s:.0f} ms" if self._first_audio_s else ""
            self._tell(f"{done.audio_ms / 1000:.1f} s of speech{first}{target}")

    async def interrupt(self) -> None:
        """Stop the sound, then tell what was heard and what was not."""
        self._stopped = True
        played_ms = self._player.played_ms() if self._player else 0
        if self._player is not None:
            await self._player.stop()
        try:
            answer: Interrupted = await self._utterance.interrupt(played_ms)
        except SpeechError:
            return  # it had been spoken to the end
        self._captions.finish(heard_all=False)
        print(f"\nspoken: {answer.text_spoken}\nnot spoken: {answer.text_remaining}", file=sys.stderr)

    async def close(self) -> None:
        if self._player is not None:
            await self._player.stop()
        if self._file is not None:
            self._file.close()

    async def _open(self, format: AudioFormat) -> None:
        if self._player_name is not None:
            self._player = await Player.open(self._player_name, format.sample_rate)
        if self._output is not None:
            self._file = SoundFile(self._output, format)

    async def _hear(self, payload: bytes) -> None:
        if self._first_audio_s is None and self._fed_at is not None:
            self._first_audio_s = time.monotonic() - self._fed_at
        if self._file is not None:
            self._file.write(payload)
        if self._player is not None:
            await self._to_the_player(self._player.play(payload))

    async def _to_the_player(self, request: Awaitable[None]) -> None:
        try:
            await request
        except PlayerFailed:
            if not self._stopped:
                raise

    def _tell(self, text: str) -> None:
        if not self._quiet:
            print(text, file=sys.stderr)


def _complain(text: str) -> int:
    print(f"voxgate say: {text}", file=sys.stderr)
    return 1
