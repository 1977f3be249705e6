"""Words on the screen at the moment they are heard."""
# TODO-DOC Where speech is written to: a sound file of the kind that its name says, or standard output.
# TODO-DOC `voxgate say`: text from the arguments or from standard input, spoken while it is still being written.

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
import wave
from collections.abc import AsyncIterable, Awaitable, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import BinaryIO, TextIO

from voxgate.client import (
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
    Word,
    Words,
    connect,
)
from voxgate.client.events import Codec

from .connection import add_gateway_flags, gateway_refusal_message, gateway_unreachable_message, tls_context
from .player import Player, PlayerFailed, find_player
from .text_input import is_terminal, typed


class Captions:
    """Prints the text as sent, word by word; white space and punctuation come with the word before them."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._text = ""
        self._printed = 0
        self._timers: list[asyncio.TimerHandle] = []

    def add_text(self, fragment: str) -> None:
        self._text += fragment

    def schedule(self, words: Sequence[Word], played_ms: int) -> None:
        """Print each word when the player, now at `played_ms`, gets there."""
        loop = asyncio.get_running_loop()
        for word in words:
            delay_s = max(0, word.start_ms - played_ms) / 1000
            self._timers.append(loop.call_later(delay_s, self._print_until, word.end))

    def finish(self, *, heard_all: bool) -> None:
        """No more words come; those still waiting are printed only when they were heard."""
        if heard_all and self._timers:
            self._print_until(len(self._text))
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if self._printed:
            self._out.write("\n")
            self._out.flush()
            self._printed = 0

    def _print_until(self, end: int) -> None:
        while end < len(self._text) and not self._text[end].isalnum():
            end += 1
        if end > self._printed:
            self._out.write(self._text[self._printed : end].replace("\n", " "))
            self._out.flush()
            self._printed = end


STANDARD_OUTPUT = Path("-")
_ITS_DESCRIPTOR = 1

_CODECS: dict[str, Codec] = {".wav": "pcm", ".mp3": "mp3", ".ogg": "ogg_opus", ".opus": "ogg_opus"}
"""By suffix. What is no WAV comes from the gateway as the file it is to be."""


def format_for(path: Path) -> AudioFormat:
    """What to ask the gateway for. Raises ValueError for a suffix that stands for nothing it speaks."""
    if path == STANDARD_OUTPUT:
        return AudioFormat("wav")  # its header need not know the length, which comes too late for a pipe
    if not path.suffix:
        return AudioFormat("pcm")
    try:
        return AudioFormat(_CODECS[path.suffix.lower()])
    except KeyError:
        raise ValueError(f"{path} is to be of a kind that is not written here: take {', '.join(_CODECS)}") from None


class SoundFile:
    """Takes the payloads of one utterance in the format of `format_for`. Raises OSError when they cannot be kept."""

    def __init__(self, path: Path, format: AudioFormat) -> None:
        to_pipe = path == STANDARD_OUTPUT
        self._file: BinaryIO = open(_ITS_DESCRIPTOR, "wb", closefd=False) if to_pipe else path.open("wb")  # noqa: SIM115
        self._wav: wave.Wave_write | None = None
        if format.codec == "pcm":
            self._wav = wave.open(self._file, "wb")  # noqa: SIM115 - lives until close()
            self._wav.setnchannels(1)
            self._wav.setsampwidth(2)
            self._wav.setframerate(format.sample_rate)

    def write(self, payload: bytes) -> None:
        if self._wav is not None:
            self._wav.writeframes(payload)
        else:
            self._file.write(payload)
            self._file.flush()  # whoever reads a pipe may be playing it

    def close(self) -> None:
        if self._wav is not None:
            self._wav.close()
        self._file.close()


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
        return _complain(gateway_unreachable_message(parsed.url))
    except Refused as refused:
        wait = f", try again in {refused.retry_after_ms / 1000:.1f} s" if refused.retry_after_ms else ""
        return _complain(gateway_refusal_message(refused.status, refused.message) + wait)
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
        speech = UtteranceOutput(utterance, parsed.output, player_name, quiet=parsed.quiet)
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


class UtteranceOutput:
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
