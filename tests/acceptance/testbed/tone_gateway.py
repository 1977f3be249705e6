"""`voxgate serve` with the tone synthesizer: `python -m acceptance.testbed.tone_gateway SCRIPT-AS-JSON FLAG...`.

Everything but the synthesizer is the real command. Questions come as JSON lines on stdin, answers go to stdout.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import sys
import time
from collections import deque
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from fakes.pipeline.tone_synthesizer import ToneScript, ToneSpeech, ToneSynthesizer, make_every_tone
from voxgate.cli import main as cli
from voxgate.cli import serve as command
from voxgate.pipeline.checkpoint.voice_config import load_voice_config
from voxgate.pipeline.gc_freeze import freeze_gc
from voxgate.pipeline.interface import SpeechRequest
from voxgate.pipeline.text.text_turns import PendingText, TextTurns
from voxgate.pipeline.text.tokenizer import load_tokenizer
from voxgate.pipeline.text.utterance_text import UtteranceText

from .loop_turns import TurnMeter

LAG_PERIOD_S = 0.01
DEMO = Path(str(files("voxgate.voices"))) / "demo"
FREED_KEPT = 1000
"""Slot releases that are kept for questions: a bound, so that a long run does not grow."""


_MALLINFO2_FIELDS, _MAPPED, _IN_USE = 10, 4, 7
"""Number of fields of `struct mallinfo2` (glibc), and its `hblkhd` and `uordblks`."""


def _mallinfo2() -> list[int]:
    class Fields(ctypes.Structure):
        _fields_ = (("values", ctypes.c_size_t * _MALLINFO2_FIELDS),)

    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = Fields
    return list(mallinfo2().values)


def _do_nothing(*_: object) -> None:
    """Neither flush nor end nor errors of the text are looked at."""


class InstrumentedToneSynthesizer(ToneSynthesizer):
    """A tone synthesizer that answers questions about what only its process can know."""

    def __init__(self, script: ToneScript, *, real_text: bool = False, **options: Any) -> None:
        """`real_text`: the text of every speech also passes the demo voice's text processing."""
        super().__init__(script, **options)
        if real_text:
            self._text_rules, self._tokenizer = load_voice_config(DEMO).text, load_tokenizer(DEMO)
        self._real_text = real_text
        self._text_turns = TextTurns()
        self._turn_meter: TurnMeter | None = None
        self.opened = 0
        self.freed_at: deque[tuple[int, float]] = deque(maxlen=FREED_KEPT)
        """(seed, monotonic time) of the speeches that ended last."""
        self._late_ms: list[float] = []
        self._lag_probe: asyncio.Task[None] | None = None
        self._answering: asyncio.Task[None] | None = None

    def run_ahead(self) -> None:
        """Do nothing: a tone needs nothing loaded."""

    async def start(self) -> None:
        await super().start()
        freeze_gc()  # as the real one does
        self._answering = self._answering or asyncio.create_task(self._answer())

    def open(self, request: SpeechRequest) -> ToneSpeech:
        speech = super().open(request)
        if self._real_text:
            text = UtteranceText(self._text_rules, self._tokenizer, self.max_characters)
            pending = PendingText(self._text_turns, lambda fragment: text.push(fragment) and None, *3 * [_do_nothing])
            speech.before_text = pending.push
        self.opened += 1
        self.speeches.clear()  # a long run must not keep every speech
        return speech

    def freed(self, speech: ToneSpeech) -> None:
        super().freed(speech)
        self.freed_at.append((speech.seed, time.monotonic()))

    async def _answer(self) -> None:
        lines = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        while line := await lines.readline():
            question = json.loads(line)
            answer = getattr(self, "do_" + question.pop("do"))(**question)
            print(json.dumps(answer), flush=True)

    def do_state(self, *, tasks: bool = True) -> dict[str, int]:
        """`tasks`: counts them, which takes a millisecond with a thousand."""
        state = {"speeches": len(self.open_speeches), "most_speeches": self.most_open, "opened": self.opened}
        return {**state, "tasks": len(asyncio.all_tasks())} if tasks else state

    def do_held(self) -> dict[str, int]:
        """Blocks of memory that Python objects occupy, and bytes that libraries hold. Collects garbage.

        Resident memory is more: freed memory between blocks that are held stays with the process.
        """
        gc.collect()
        held = _mallinfo2()
        return {"blocks": sys.getallocatedblocks(), "bytes": held[_IN_USE] + held[_MAPPED]}

    def do_freed(self) -> list[tuple[int, float]]:
        return list(self.freed_at)

    def do_lose(self) -> None:
        self.lose()

    def do_watch_lag(self) -> None:
        """Start to measure the lag of the event loop."""
        self._late_ms = []
        self._lag_probe = asyncio.create_task(self._watch_lag())

    def do_lag(self) -> dict[str, float]:
        """Stop measuring. Returns milliseconds."""
        assert self._lag_probe is not None
        self._lag_probe.cancel()
        late = sorted(self._late_ms)
        return {"p99": late[int(0.99 * len(late))], "max": late[-1]}

    def do_watch_turns(self, *, count_calls: bool) -> None:
        """Start to measure the turns of the event loop."""
        self._turn_meter = TurnMeter(count_calls=count_calls)
        self._turn_meter.start()

    def do_turns(self) -> dict[str, float]:
        """Stop measuring. Returns what `TurnMeter.stop` returns."""
        assert self._turn_meter is not None
        return self._turn_meter.stop()

    async def _watch_lag(self) -> None:
        while True:
            due_s = time.monotonic() + LAG_PERIOD_S
            await asyncio.sleep(LAG_PERIOD_S)
            self._late_ms.append(1000 * (time.monotonic() - due_s))


def main() -> int:
    options = json.loads(sys.argv[1])
    make_every_tone()
    known = {field.name for field in fields(ToneScript)}
    script = ToneScript(**{name: options.pop(name) for name in tuple(options) if name in known})
    command.build_synthesizer = lambda settings, *_: InstrumentedToneSynthesizer(  # type: ignore[assignment]  # replaces the voice
        script, max_characters=settings.max_characters, **options
    )
    return cli.main(["serve", *sys.argv[2:]])


if __name__ == "__main__":
    sys.exit(main())
