from __future__ import annotations

import asyncio
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from .scorecard.card import Trial, row
from .testbed.gateway_process import tone_gateway
from .testbed.listeners import UNLIMITED, WORDS
from .testbed.raw_websocket import RawClient, clients

SOCKETS = 48
AT_ONCE = 2
"""Utterances at once on each socket."""


@row(
    "S6",
    "lost, duplicated, reordered audio; two utterances at once on every socket, PCM and Opus",
    "0 in 10^5 utterances",
    nightly_s=110,
)
async def nothing_lost(trial: Trial) -> None:
    utterances = trial.size(100_000)
    texts = [" ".join(random.Random(n).choices(WORDS, k=2 + n % 3)) + "." for n in range(40)]
    counts: Counter[str] = Counter()
    todo = iter(range(utterances))
    # The next utterance of a line can be there before the slot of the last was given back: it waits then.
    async with tone_gateway(slots=AT_ONCE * SOCKETS, queue_length=AT_ONCE * SOCKETS, **UNLIMITED) as served:
        listeners = await clients(served.port, SOCKETS)
        lines = (_speak(client, line, todo, texts, counts) for client in listeners for line in range(AT_ONCE))
        await asyncio.gather(*lines)
        trial.note("utterances", counts.total())
        trial.equal("done as offline", counts["done"], utterances)
        for what, count in counts.items():
            if what != "done":
                trial.missed.append(f"{what}: {count}")
        trial.equal("complaints", len(served.complaints), 0)


async def _speak(client: RawClient, line: int, todo, texts: list[str], counts: Counter[str]) -> None:
    for number in todo:
        codec = "opus" if number % 4 == 0 else "pcm"
        heard = client.say(
            texts[number % len(texts)], name=f"{line}.{number}", seed=number % 3, codec=codec, pacing="none"
        )
        outcome = await heard.ended(60)
        # Audio that came after the end would be noted only now.
        counts[heard.mismatch or outcome] += 1


TESTS = Path(__file__).parents[1]


@row(
    "S7",
    "text chunking: the same text in any fragmentation, at any concurrency, greedy and seeded",
    "identical codes",
    light_s=60,
    nightly_s=60,
    voice=True,
)
def exactness(trial: Trial) -> None:
    """The engine against a plain loop that shares no code with it (tests/pipeline/talker/test_exactness.py)."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "pipeline/talker/test_exactness.py"]
    told = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)
    passed = re.search(r"(\d+) passed", told.stdout)
    failed = re.search(r"(\d+) (failed|error)", told.stdout)
    trial.note("comparisons passed", int(passed[1]) if passed else told.stdout.count("."))
    trial.equal("failed", int(failed[1]) if failed else 0, 0)
    trial.equal("exit status", told.returncode, 0)
    if told.returncode:
        print(told.stdout[-2000:], file=sys.stderr)
