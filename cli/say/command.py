"""`voxgate say`: speaks text from the arguments or from standard input while it is still being written."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import AsyncIterable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from pathlib import Path

from voxgate.client import (
    AudioFormat,
    ClientError,
    Refused,
    Session,
    Unreachable,
    Utterance,
    connect,
)
from voxgate.client.events import Codec

from ..connection import add_gateway_flags, gateway_refusal_message, gateway_unreachable_message, tls_context
from ..failure import fail
from ..player import PlayerFailed, find_player
from ..voices import VoicesUnavailable, fetch_voices
from .output import SpeechOutput
from .sound_file import STANDARD_OUTPUT, format_for
from .text_input import is_terminal, read_stdin_text
from .utterance_texts import UtteranceTexts

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
