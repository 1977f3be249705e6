"""Actions after which speech goes on: a lost connection, a hold, a session resumed, an utterance restored elsewhere."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from ...testbed.raw_websocket import upgrade_request
from ..hostile_input import PEER_KEY, TEXTS, restore_of, text_frame, with_query
from ..peers import HOST, Peer
from .connections import any_credentials, listen
from .table import ActionTable

if TYPE_CHECKING:
    from ..world import World

ACTIONS = ActionTable()


@ACTIONS.add(4)
async def lose_connection(world: World, chance: random.Random) -> str:
    """The listener loses its connection, mostly amid speech, and resumes its session while others go on."""
    said = await listen(world, chance) if chance.random() < 0.7 else ""
    await asyncio.sleep(chance.choice([0, 0.3, 1.2]))
    silent_s, pause_s = chance.choice([0, 0, 0.02, 0.3]), chance.choice([0, 0.02, 0.3, 1.2])
    lost = world.lose_listener(silent_s, pause_s)
    return f"after {silent_s:g} s without reading, for {pause_s:g} s, asked for {said or 'nothing'}" if lost else said


HELD_MS = 10_000
"""For how long a listener has its speech kept; it goes on earlier."""


@ACTIONS.add(4)
async def hold_speech(world: World, chance: random.Random) -> str:
    """The listener interrupts what it hears, perhaps to lose its connection too, and then wants to hear the rest."""
    listener = world.listener
    speaking = [(name, each) for name, each in listener.received.items() if not each.over.done() and each.started_s]
    if not speaking or listener.closed.done():
        return ""
    name, received = chance.choice(speaking)
    world.held.add(received)
    world.disturbed.add(received)
    listener.send(type="interrupt", utterance=name, hold_ms=HELD_MS)
    lost = chance.random() < 0.3 and await lose_connection(world, chance)
    await asyncio.sleep(held_s := chance.choice([0, 0.02, 0.3, 1.2, 4.0]))
    if not listener.closed.done():
        listener.send(type="continue", utterance=name)
    return f"{name}, for {held_s:g} s{', connection lost ' + lost if lost else ''}"


async def _resume(world: World, chance: random.Random, peer: Peer, fields: dict[str, object]) -> None:
    """Connects another peer that resumes the session of `peer`, with these fields in place of the right ones."""
    headers, query = any_credentials(world, chance) if chance.random() < 0.2 else (peer.headers, "")
    path = with_query(peer.path_to_resume, query)
    other = Peer(upgrade_request(HOST, path, headers), "native", headers)
    other.received = peer.received
    if await world.add_peer(other, chance):
        await asyncio.wait([other.answered], timeout=1)
        other.write(text_frame(**(peer.resume_message | fields)))


@ACTIONS.add(5)
async def resume_session(world: World, chance: random.Random) -> str:
    """A peer that lost its connection, or still has it, resumes its session, perhaps twice at once."""
    sessions = [peer for peer in world.peers if peer.token]
    if not sessions:
        return ""
    peer = chance.choice(sessions)
    lost = chance.choice([peer.reset, peer.vanish, peer.stall, None]) if peer.open else None
    if lost is not None:
        lost()
        await asyncio.sleep(chance.choice([0, 0.02, 1.2, 3.5]))
    times = chance.choice([1, 1, 2])
    for _ in range(times):
        await _resume(world, chance, peer, {})
    return f"{times} times, after {'no loss' if lost is None else lost.__name__}"


@ACTIONS.add(5)
async def restore(world: World, chance: random.Random) -> str:
    """A peer lets an utterance, its own or another peer's, go on in a session, behind a checkpoint, right or not."""
    if chance.random() < 0.7:
        await _speak_with_checkpoints(world, chance)
    saved = [(peer, name) for peer in world.peers for name in peer.checkpoints if name in peer.asked]
    if not saved or (peer := world.pick(chance, "native")) is None:
        return ""
    description, data = restore_of(peer, chance.choice(saved), chance.choice(saved), chance)
    peer.write(data)
    return description


async def _speak_with_checkpoints(world: World, chance: random.Random) -> None:
    """A peer opens a session with checkpoints and listens to an utterance for a while."""
    headers = (f"Authorization: Bearer {PEER_KEY}",) if world.setup.keys else ()
    peer = Peer(upgrade_request(HOST, "/v1/speech?resume=new&checkpoints=1", headers), "native", headers)
    if not await world.add_peer(peer, chance):
        return
    await asyncio.wait([peer.answered], timeout=1)
    text, asked = chance.choice(TEXTS) * chance.choice([1, 10]), {"format": {"codec": "pcm"}}
    peer.utterances, peer.asked["u0"] = 1, {"text": text, **asked}
    messages = [{"type": "start", **asked}, {"type": "text", "text": text}, {"type": "end"}]
    peer.write(b"".join(text_frame(utterance="u0", **fields) for fields in messages[: chance.choice([2, 3, 3])]))
    await asyncio.sleep(chance.choice([0.3, 1.2, 1.2, 3.5]))


@ACTIONS.add(3)
async def resume_wrongly(world: World, chance: random.Random) -> str:
    """A peer resumes with a token or a count that is not right, or sends something else first."""
    sessions = [peer for peer in world.peers if peer.token]
    if not sessions:
        return ""
    peer, other = chance.choice(sessions), chance.choice(sessions)
    wrong: dict[str, dict[str, object]] = {
        "a forged token": {"token": "forged"},
        "the token of any session": {"token": other.token},
        "a token that is no text": {"token": 1},
        "too high a count": {"received": 10**6},
        "no message received": {"received": 0},
        "a ping": {"type": "ping"},
    }
    name = chance.choice(list(wrong))
    await _resume(world, chance, peer, wrong[name])
    return f"with {name}"  # not the token itself: it is another one in each run
