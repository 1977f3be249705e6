"""`voxgate say`: speaks text from the arguments or from standard input while it is still being written."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from voxgate.client import (
    Audio,
    AudioFormat,
    ClientError,
    Interrupted,
    Notice,
    Queued,
    Refused,
    Session,
    SpeechError,
    Started,
    Unreachable,
    Utterance,
    Word,
    Words,
    connect,
)
from voxgate.client.events import Codec
from voxgate.client.utterance import MESSAGE_REFUSED_CODES

from .connection import add_gateway_flags, gateway_refusal_message, gateway_unreachable_message, tls_context
from .failure import fail
from .player import Player, PlayerFailed, find_player
from .sound_file import STANDARD_OUTPUT, SoundFile, format_for
from .text_input import is_terminal, read_stdin_text
from .utterance_texts import UtteranceTexts
from .voices import VoicesUnavailable, fetch_voices

EPILOG = """examples:
  voxgate say "Good morning."
  voxgate say                              speak while you type; Ctrl-D ends, Ctrl-C interrupts
  llm "tell me a story" | voxgate say      speak while a language model writes
  voxgate say --output hello.wav "Hello."
  voxgate say --compare "Hello."           in every voice, one after the other
"""


INTERRUPTED_STATUS = 130
"""Exit status after Ctrl-C."""
CLOSED_PIPE_STATUS = 141
"""Exit status when the reader of the output has closed its pipe: what a shell reports for a program ended by SIGPIPE,
as most Unix commands are. It is no failure to report: `voxgate say --output - ... | head` works as intended."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("text", nargs="*", help="text to speak; without it, standard input is spoken as it arrives")
    parser.add_argument("--voice", help="a voice listed by 'voxgate voices'")
    parser.add_argument(
        "--compare",
        action="store_true",
        help="speak the text in every voice of the gateway, one after the other; files get the voice's name appended",
    )
    parser.add_argument("--language", help="language of the text (default: auto)")
    parser.add_argument("--instructions", help="speaking style, for voices that take instructions")
    parser.add_argument(
        "--normalise", action="store_true", default=None, help="spell out numbers, dates, money and the like"
    )
    parser.add_argument(
        "--layout",
        choices=("streaming", "non_streaming"),
        help="start speaking with the first words (default), or after the whole text",
    )
    parser.add_argument(
        "--trim-silence",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="remove silence before the first word (default: as the gateway is configured)",
    )
    parser.add_argument("--rate", type=float, metavar="X", help="how fast to speak, 0.5 to 2 (default: 1)")
    parser.add_argument("--volume", type=float, metavar="X", help="how loud to speak, 0 to 2 (default: 1)")
    parser.add_argument("--seed", type=int, metavar="N", help="random seed; the same seed repeats an utterance exactly")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="write a .wav, .mp3, .ogg or .opus file instead of playing; - writes WAV to standard output",
    )
    add_gateway_flags(parser)
    parser.add_argument("--quiet", action="store_true", help="print neither words nor times")


def run(parsed: argparse.Namespace) -> int:
    try:
        format = AudioFormat() if parsed.output is None else format_for(parsed.output)
    except ValueError as error:
        return fail("say", str(error))
    player = None if parsed.output else find_player()
    if parsed.output is None and player is None:
        return fail("say", "no audio player found: install one, for example 'apt install alsa-utils', or use --output")
    if parsed.compare and (parsed.voice or parsed.output == STANDARD_OUTPUT):
        return fail("say", "--compare speaks in every voice, each to a file of its own: omit --voice and --output -")
    try:
        command = _compare if parsed.compare else _say
        return asyncio.run(command(parsed, player, format))
    except VoicesUnavailable as error:
        return fail("say", str(error))
    except Unreachable as unreachable:
        return fail("say", gateway_unreachable_message(parsed.url, unreachable.__cause__ or unreachable))
    except Refused as refused:
        wait = f", try again in {refused.retry_after_ms / 1000:.1f} s" if refused.retry_after_ms else ""
        return fail("say", gateway_refusal_message(refused.status, refused.message) + wait)
    except BrokenPipeError:
        return CLOSED_PIPE_STATUS
    except OSError as error:
        return fail("say", f"{error.filename or parsed.output}: {error.strerror or error}")
    except (ClientError, PlayerFailed, ValueError) as error:
        return fail("say", str(error))


async def _say(parsed: argparse.Namespace, player_name: str | None, format: AudioFormat) -> int:
    text = _text(parsed)
    async with connect(parsed.url, key=parsed.key, tls=tls_context(parsed)) as session:
        return await _speak(parsed, session, text, player_name, format)


async def _compare(parsed: argparse.Namespace, player_name: str | None, format: AudioFormat) -> int:
    """Speaks the whole text in each voice; an interrupt ends the comparison."""
    status = 0
    voices = [voice["name"] for voice in (await asyncio.to_thread(fetch_voices, parsed))["voices"]]
    text = _text(parsed)
    fragments = [fragment async for fragment in text] if isinstance(text, AsyncIterable) else list(text)
    async with connect(parsed.url, key=parsed.key, tls=tls_context(parsed)) as session:
        for voice in voices:
            if not parsed.quiet:
                print(f"{voice}:", file=sys.stderr)
            output = parsed.output and parsed.output.with_stem(f"{parsed.output.stem}_{voice}")
            one = argparse.Namespace(**vars(parsed) | {"voice": voice, "output": output})
            if (ended := await _speak(one, session, fragments, player_name, format)) == INTERRUPTED_STATUS:
                return ended
            status = max(status, ended)
    return status


def _text(parsed: argparse.Namespace) -> Iterable[str] | AsyncIterable[str]:
    if parsed.text:
        return [" ".join(parsed.text)]
    if is_terminal() and not parsed.quiet:
        print("Type the text to speak. Ctrl-D ends, Ctrl-C interrupts.", file=sys.stderr)
    return read_stdin_text()


async def _speak(
    parsed: argparse.Namespace,
    session: Session,
    text: Iterable[str] | AsyncIterable[str],
    player_name: str | None,
    format: AudioFormat,
) -> int:
    """Speaks the text in as many utterances as the gateway's limit needs; returns the command's exit status."""
    limits = session.info.limits
    texts = UtteranceTexts(text, limits.get("characters_per_utterance"), limits.get("message_bytes"))
    output = SpeechOutput(parsed.output, player_name, quiet=parsed.quiet)

    def utterance(codec: Codec) -> AbstractAsyncContextManager[Utterance]:
        return session.utterance(
            voice=parsed.voice,
            language=parsed.language,
            instructions=parsed.instructions,
            layout=parsed.layout,
            trim_silence=parsed.trim_silence,
            normalise=parsed.normalise,
            seed=parsed.seed,
            rate=parsed.rate,
            volume=parsed.volume,
            format=replace(format, codec=codec),
            words=not parsed.quiet and player_name is not None,
            pacing="playback" if player_name else "none",
        )

    speaking = asyncio.create_task(_speak_all(utterance, output, texts, format.codec), name="speech")
    loop = asyncio.get_running_loop()
    interrupting: list[asyncio.Task[None]] = []

    async def interrupt() -> None:
        try:
            await output.interrupt(texts.waiting)
        finally:
            speaking.cancel()  # which may wait for more text

    def start_interrupt() -> None:
        loop.remove_signal_handler(signal.SIGINT)  # a second Ctrl-C ends the command at once
        interrupting.append(loop.create_task(interrupt(), name="interrupt"))

    loop.add_signal_handler(signal.SIGINT, start_interrupt)
    try:
        await asyncio.wait({speaking})
    finally:
        await asyncio.gather(*interrupting, return_exceptions=True)
        loop.remove_signal_handler(signal.SIGINT)
        speaking.cancel()
        await asyncio.gather(speaking, return_exceptions=True)
        await texts.close()
        await output.close()
    if not speaking.cancelled():
        speaking.result()
    if interrupting:
        return INTERRUPTED_STATUS
    return 1 if output.text_refused else 0


async def _speak_all(
    open_utterance: Callable[[Codec], AbstractAsyncContextManager[Utterance]],
    output: SpeechOutput,
    texts: UtteranceTexts,
    codec: Codec,
) -> None:
    """Speaks one utterance after the other; raises what `SpeechOutput.speak` raises."""
    async with AsyncExitStack() as utterances:  # open until the end: the last audio of one is played during the next
        utterance = await utterances.enter_async_context(open_utterance(codec))
        await output.speak(utterance, texts.fragments())
        while not output.interrupted and await texts.more():
            # The stream has one WAV header.
            following = await utterances.enter_async_context(open_utterance("pcm" if codec == "wav" else codec))
            await output.speak(following, texts.fragments())
        await output.finish()


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


class Captions:
    """Prints each word of the text when it is played, with the white space and punctuation that follow it."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._text = ""
        self._utterance_start = 0
        self._printed = 0
        self._timers: list[asyncio.TimerHandle] = []

    def begin_utterance(self) -> None:
        """What follows is the text of another utterance, in which its words are counted."""
        self._utterance_start = len(self._text)

    def add_text(self, fragment: str) -> None:
        self._text += fragment

    def schedule(self, words: Sequence[Word], played_ms: int) -> None:
        """Prints each word when the player, now at `played_ms` of the utterance, reaches it."""
        loop = asyncio.get_running_loop()
        for word in words:
            delay_s = max(0, word.start_ms - played_ms) / 1000
            self._timers.append(loop.call_later(delay_s, self._print_until, self._utterance_start + word.end))

    def finish(self, *, played_all: bool) -> None:
        """Ends the line. Words still scheduled are printed only where everything was played."""
        if played_all and self._timers:
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
