from __future__ import annotations

import asyncio
import random

from fakes.bench import Bench, say
from fakes.packets import s16le
from fakes.tone import Script, tone_pcm
from fakes.virtual_time import run
from voxgate.pipeline.errors import GenerationFailed

from ..card import Trial, row

SPEAKERS = 8
TEXT = "The quick brown fox jumps over the lazy dog. "


@row(
    "F3",
    "one request poisons a step: it fails with an error of ours, or one nobody expects",
    "only that utterance fails",
    light_s=3,
    nightly_s=8,
)
def poisoned_request(trial: Trial) -> None:
    """Through the gateway; that the engine fails one request alone is tests/pipeline/talker's to show."""
    poisons = trial.size(400, light=40)
    for number in range(poisons):
        run(_scene(random.Random(trial.seed + number)))
    trial.note("poisoned", poisons)
    trial.note("others unharmed", "100 %")  # a harmed one raises


async def _scene(chance: random.Random) -> None:
    async with Bench(Script(chunk_frames=chance.choice([1, 3])), slots=SPEAKERS) as bench:
        sockets = [bench.connect(f"k{n}") for n in range(SPEAKERS)]
        for number, socket in enumerate(sockets):
            say(socket, "a", TEXT * 2 + str(number), pacing=chance.choice(["playback", "none"]))
        await asyncio.sleep(0.001)
        poisoned = chance.randrange(SPEAKERS)
        speech = bench.synthesizer.speeches[poisoned]
        say(sockets[poisoned], "b", TEXT)
        if not speech.finish_reason:
            await asyncio.sleep(chance.uniform(0, 2))
        speech.lose(chance.choice([GenerationFailed("poison"), RuntimeError("poison"), MemoryError("poison")]))
        await asyncio.sleep(60)
        for number, socket in enumerate(sockets):
            _check(socket, TEXT * 2 + str(number), may_fail=number == poisoned)
        assert "b" in {done["utterance"] for done in sockets[poisoned].of("done")}, "the socket goes on"


def _check(socket, text: str, *, may_fail: bool) -> None:
    errors = [(error["code"], error["utterance"]) for error in socket.of("error")]
    if may_fail and errors:
        assert errors == [("generation_failed", "a")]
        return
    assert not errors
    started = next(m for m in socket.of("started") if m["utterance"] == "a")
    assert b"".join(payload for _, payload in socket.audio(started["number"])) == s16le(tone_pcm(text))
