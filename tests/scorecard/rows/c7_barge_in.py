from __future__ import annotations

import asyncio
import time

from ..card import Trial, row
from ..chorus import UNLIMITED, text_of
from ..gateways import Served, tone_gateway
from ..wire import Client, clients

PAUSE_S = 0.02
CODECS = ("pcm", "opus")


@row(
    "C7",
    "barge-in at random moments",
    "nothing of that utterance sent after the answer; slot free ≤ 100 ms",
    light_s=6,
    nightly_s=30,
    timed=True,
)
async def barge_in(trial: Trial) -> None:
    at_once, rounds = trial.size(40, light=20), trial.size(10, light=2)
    async with tone_gateway(slots=at_once, **UNLIMITED) as served:
        listeners = await clients(served.port, at_once)
        asked: dict[int, float] = {}
        answers_ms: list[float] = []
        for turn in range(rounds):
            bouts = (_interrupt(client, turn, n, asked, answers_ms) for n, client in enumerate(listeners))
            await asyncio.gather(*bouts)
        freed_ms = await _freed_ms(served, asked)
        heard = [one for client in listeners for one in client.heard.values()]
        trial.note("interrupts", len(asked))
        trial.equal("interrupted", sum(one.outcome == "interrupted" for one in heard), len(asked))
        trial.equal("with audio after it", sum("audio after" in one.disorder for one in heard), 0)
        trial.equal("texts that do not join", sum(_torn(one.end, one.text) for one in heard), 0)
        trial.equal("slots never freed", len(asked) - len(freed_ms), 0)
        trial.most("slot free after ms, max", max(freed_ms), 100, timed=True)
        trial.note("answer after ms, max", max(answers_ms))
        trial.equal("complaints", len(served.complaints), 0)


async def _interrupt(client: Client, turn: int, number: int, asked: dict[int, float], answers_ms: list[float]) -> None:
    seed = turn * 1000 + number
    heard = client.say(text_of(20, number % 4), name=f"u{turn}", seed=seed, codec=CODECS[number % 2])
    # From before the first audio to well into the speech, each at its own moment.
    await asyncio.sleep(PAUSE_S * ((number * 7 + turn * 3) % 60))
    asked[seed] = time.monotonic()  # the loop's own clock is as old as its turn
    client.send(type="interrupt", utterance=f"u{turn}")
    await heard.ended(10)
    answers_ms.append(1000 * (time.monotonic() - asked[seed]))
    await asyncio.sleep(0.5)  # for what must not come


async def _freed_ms(served: Served, asked: dict[int, float]) -> list[float]:
    """From each interrupt to the talker's slot being free; both processes read the same clock."""
    await served.until_idle()
    freed = dict(map(tuple, await served.ask("freed")))
    return [1000 * (freed[seed] - at_s) for seed, at_s in asked.items() if seed in freed]


def _torn(answer: dict[str, str], text: str) -> bool:
    return answer.get("text_spoken", "") + answer.get("text_remaining", "") != text
