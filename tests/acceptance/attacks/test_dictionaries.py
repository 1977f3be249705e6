"""The event loop while clients name, list and read dictionaries of pronunciations of the largest size."""

from __future__ import annotations

import asyncio
from pathlib import Path

from voxgate.gateway.session.lookup.pronunciations import FOLDER
from voxgate.pipeline.text.lexicon.lexicon import MAX_RULES, MAX_SPOKEN_CHARACTERS, LexiconRule
from voxgate.pipeline.text.lexicon.store import MAX_DICTIONARIES_PER_OWNER, DictionaryStore

from ..testbed.gateway_process import tone_gateway
from ..testbed.measuring import Figures
from ..testbed.raw_http import ask
from ..testbed.raw_websocket import connect_many

TURN_MS = 10
TURN_CALLS = 40_000
LAG_MS = 50
CLIENTS = 8
NAMED = 3
LISTS = ("/v1/pronunciation-dictionaries", "/pronunciation-dicts")


def _store(folder: Path, count: int, versions: int = 1) -> list[str]:
    """Stores `count` dictionaries; returns their ids."""
    store = DictionaryStore(folder / FOLDER)
    spoken = "\U0001f600" * MAX_SPOKEN_CHARACTERS
    ids = []
    for number in range(count):
        rules = [LexiconRule(f"{number:03}{rule:04}term long", spoken) for rule in range(MAX_RULES)]
        made = store.create("d", "", rules)
        for _ in range(versions - 1):
            store.change(made.id, None, lambda each, rules=rules: each.with_rules(rules))  # type: ignore[misc]  # bound
        ids.append(made.id)
    return ids


async def test_a_start_that_names_dictionaries_keeps_turns_short(tmp_path: Path, figures: Figures) -> None:
    """Several clients start at the same moment, each with three dictionaries that are not compiled."""
    ids = _store(tmp_path, CLIENTS * NAMED)
    async with tone_gateway(voices_dir=tmp_path) as gateway:
        clients = await connect_many(gateway.port, CLIENTS)
        await clients[0].say("What is loaded once is loaded now.", name="warm").ended()
        await gateway.ask("watch_turns", count_calls=not figures.judge_time)
        for number, client in enumerate(clients):
            named = ids[number * NAMED : (number + 1) * NAMED]
            client.send(type="start", utterance="a", format={"codec": "pcm"}, dictionaries=named)
            client.send(type="ping", id="behind")
        while not all(client.messages[-1]["type"] == "pong" for client in clients):
            await asyncio.sleep(0.01)
        turns = await gateway.ask("turns")
        for client in clients:
            assert not any(message["type"] == "error" for message in client.messages)
        figures.note("turns", turns["turns"])
        figures.time_at_most("longest turn ms", turns["longest_ms"], TURN_MS)
        figures.at_most("calls in a turn", turns["most_calls"], TURN_CALLS)
        for client in clients:
            client.abort()
        assert gateway.log_errors == []


async def test_lists_of_dictionaries_do_not_delay_the_loop(tmp_path: Path, figures: Figures) -> None:
    """The files are read in a thread, which keeps the loop waiting while it holds the interpreter."""
    _store(tmp_path, MAX_DICTIONARIES_PER_OWNER, versions=3)
    async with tone_gateway(voices_dir=tmp_path) as gateway:
        await asyncio.gather(*(ask(gateway.port, "GET", path) for path in LISTS))
        await gateway.ask("watch_lag")
        answers = await asyncio.gather(*(ask(gateway.port, "GET", path) for path in 2 * LISTS))
        lag = await gateway.ask("lag")
        assert [len(answer.document.get("data", [])) for answer in answers] == [0, 2, 0, 2]
        figures.note("lag p99 ms", lag["p99"])
        figures.time_at_most("longest lag ms", lag["max"], LAG_MS)
        assert gateway.log_errors == []
