from __future__ import annotations

import asyncio
import json
import signal

from .scorecard.card import Trial, row
from .testbed.expected_audio import all_ended, mismatches
from .testbed.gateway_process import tone_gateway
from .testbed.listeners import text_of
from .testbed.raw_websocket import clients, connect

RESTARTING = 1012


@row(
    "F5",
    "SIGTERM with utterances under way; its deadline; a second SIGTERM",
    "all finish, hashes equal; new ones refused ≤ 100 ms; exit 0; at the deadline going_away + 1012; a second ends it",
    light_s=7,
    nightly_s=10,
    timed=True,
)
async def drain(trial: Trial) -> None:
    await asyncio.gather(_finishes(trial), _deadline(trial), _second(trial))


async def _finishes(trial: Trial) -> None:
    speaking = trial.size(50, light=5)
    async with tone_gateway(slots=speaking) as served:
        listeners, idle = await clients(served.port, speaking), (await clients(served.port, 1))[0]
        heard = [client.say(text_of(3, number), codec="opus") for number, client in enumerate(listeners)]
        await asyncio.sleep(1)
        served.signal(signal.SIGTERM)
        await asyncio.sleep(0.05)
        refused_ms, codes = [], []
        began_s = idle.now()
        # On a socket that speaks: one that is idle is closed at any moment of the first half second.
        late = listeners[0].say("Too late.", name="late")
        late_client = await connect(served.port)
        refused_ms.append(1000 * (idle.now() - began_s))
        codes.append((late_client.answered.result(), json.loads(late_client.body or b"{}").get("error")))
        await late.ended(5)
        refused_ms.append(1000 * ((late.over_s or 0.0) - began_s))
        await all_ended(heard, 30)
        status = await served.gone()
        trial.note("utterances under way", speaking)
        trial.equal("finished", sum(one.outcome == "done" for one in heard), speaking)
        trial.equal("mismatches", len(mismatches(heard)), 0)
        trial.equal("a new socket", str(codes[0]), "(503, 'draining')")
        trial.equal("a new utterance", late.outcome, "draining")
        trial.most("refused after ms, max", max(refused_ms), 100, timed=True)
        trial.equal(
            "told going_away", sum("going_away" in _kinds(client) for client in [*listeners, idle]), speaking + 1
        )
        trial.equal("close codes", str({client.close_code for client in [*listeners, idle]}), str({RESTARTING}))
        trial.equal("exit status", status, 0)
        trial.equal("complaints", len(served.complaints), 0)


async def _deadline(trial: Trial) -> None:
    async with tone_gateway(shutdown_grace_s=1) as served:
        (client,) = await clients(served.port, 1)
        heard = client.say(text_of(30))
        await asyncio.sleep(0.5)
        served.signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            code = await client.closed
        trial.equal("at the deadline", f"{heard.outcome}, {code}", f"draining, {RESTARTING}")
        trial.equal("exit status then", await served.gone(), 0)


async def _second(trial: Trial) -> None:
    async with tone_gateway(shutdown_grace_s=60) as served:
        (client,) = await clients(served.port, 1)
        client.say(text_of(30))
        await asyncio.sleep(0.5)
        served.signal(signal.SIGTERM)
        await asyncio.sleep(0.3)
        began_s = client.now()
        served.signal(signal.SIGTERM)
        status = await served.gone()
        trial.most("ended by the second after s", client.now() - began_s, 5, timed=True)
        trial.equal("exit status of that", status, 0)


def _kinds(client) -> set[str]:
    return {message["type"] for message in client.messages}
