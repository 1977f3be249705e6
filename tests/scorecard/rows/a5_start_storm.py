from __future__ import annotations

import asyncio
from collections import Counter

from ..card import Trial, row
from ..chorus import UNLIMITED
from ..gateways import tone_gateway
from ..oracle import all_ended
from ..wire import Client, clients

EXPECTED = {"interrupted", "at_capacity", "done"}
SLOTS = 20
SOCKETS = 50
CONFIRMS_S = 0.15
"""How long the engine takes to confirm an abort."""


@row(
    "A5",
    "start/interrupt storm, 1,000/s, with an engine slow to confirm aborts",
    "slots never exceed the limit, unconfirmed aborts counted; then none is held",
    nightly_s=25,
)
async def start_storm(trial: Trial) -> None:
    per_s, seconds = trial.size(1000, least=100), trial.size(12, least=3)
    talker = {"close_s": CONFIRMS_S}
    async with tone_gateway(slots=SLOTS, talker=talker, queue_length=32, queue_wait_ms=500, **UNLIMITED) as served:
        listeners = await clients(served.port, SOCKETS)
        outcomes: Counter[str] = Counter()
        began_s = listeners[0].now()
        storm = (_storm(client, per_s / SOCKETS, seconds, n / per_s, outcomes) for n, client in enumerate(listeners))
        await asyncio.gather(*storm)
        rate = outcomes.total() / (listeners[0].now() - began_s)
        await served.until_idle()
        state = await served.ask("state")
        _, limits = await served.get("/v1/limits")
        trial.least("starts a second", rate, 0.8 * per_s, timed=True)
        trial.note("outcomes", ", ".join(f"{count} {name}" for name, count in outcomes.most_common()))
        trial.most("most slots in use", state["most_speeches"], SLOTS)
        # With a slot the engine has not confirmed given out again, the talker would refuse: an error of another text.
        engine_refusals = sum("no slot" in one.end.get("message", "") for c in listeners for one in c.heard.values())
        trial.equal("given out before it was confirmed", engine_refusals, 0)
        trial.equal("slots held afterwards", limits["utterances"]["active"] + limits["queue"]["waiting"], 0)
        trial.equal("unexpected", sum(outcomes[name] for name in outcomes if name not in EXPECTED), 0)
        trial.equal("complaints", len(served.complaints), 0)


async def _storm(client: Client, per_s: float, seconds: float, offset_s: float, outcomes: Counter[str]) -> None:
    """Starts at fixed times; each is interrupted a moment later."""
    loop = asyncio.get_running_loop()
    at_s, heard = loop.time() + offset_s, []
    for number in range(int(per_s * seconds)):
        await asyncio.sleep(max(0.0, at_s - loop.time()))
        at_s += 1 / per_s
        one = client.say("Never mind.", name=f"u{number}")
        heard.append(one)
        loop.call_later(0.03 * (number % 4), lambda name=f"u{number}": client.send(type="interrupt", utterance=name))
    await all_ended(heard, 20)
    outcomes.update(one.outcome for one in heard)
