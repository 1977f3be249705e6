"""Executes programs, judges what is left, and shrinks programs that fail."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from unittest.mock import patch

from aiohttp.web_app import _cached_build_middleware
from voxgate.gateway import engine, listener
from voxgate.gateway.transport import connection_pool, handshake

from ..testbed import paired_loop
from .actions import ACTIONS
from .hostile_input import TEXTS
from .invariants import CLOSED_WITHIN_S, Census, complaints, open_descriptors, speech_faults, uncut_peers
from .program import Program
from .world import PROBE_RESERVE, Files, World

PATIENCE_S = 75.0
"""Time in which the gateway must have ended what its limits do not allow to go on: the longest one is 60 s."""
LET_IN_S = 90.0
"""Time in which a caller that holds no slot gets one, however many others want it: they keep theirs for at most 25 s of
speech, 10 s without text in all, and the time until a client that does not read is cut."""
SETTLE_S = 12.0
"""Time in which everything is released once all peers have left: sessions wait 10 s for another connection."""
NOTICED_S = 2.0
"""Time in which the gateway notices that a peer has left, unless its end lies behind messages that are not read yet."""
UNREAD_S = 30.0
"""Time in which a ping, every 10 s, or the timeout of a client that does not read shows that end."""
DELIVERED_S, DELIVERY_S = 1.0, 0.01
"""Real time in which the kernel has delivered what was sent over TCP, and the interval of looks at it."""
POLL_INTERVAL_S = 5.0
"""As `gateway.engine.POLL_INTERVAL_S`, but longer: in a quiet minute little else takes processor time."""
MAX_PENDING = 3
"""As `gateway.transport.handshake.MAX_PENDING`, but few: with the usual number none would ever be evicted."""
IDLE_PING_TIMEOUT_S = 40.0
"""As `gateway.transport.handshake.IDLE_PING_TIMEOUT_S`, but shorter than `PATIENCE_S`."""
TURN_OF_KEEPALIVE_S = 0.1
"""A ping of the library and its pong take less."""
HANDLER = "serve.<locals>.protocol_handler"
"""Task of a connection. That of a session's first one runs the session for as long as it lasts."""
MAX_FAULTS = 3
"""Breaks of the rules of fairness that are reported: one is often followed by many."""
READY_S = 130.0
"""Time in which a lost engine is back."""


@dataclass
class Outcome:
    """What a run showed. Without `faults` every invariant held."""

    program: Program
    faults: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    """What the steps did, with the time of each."""
    digest: str = ""
    """A hash of the trace and of the times at which clients received something, the same for every run of a program."""

    @property
    def kinds(self) -> frozenset[str]:
        """The faults without their numbers, to compare two runs."""
        return frozenset(re.sub(r"\d+(\.\d+)?", "N", re.sub(r" \(.*\)$", "", fault)) for fault in self.faults)


def execute(program: Program, files: Files) -> Outcome:
    """Runs a program in an event loop of its own."""
    random.seed(program.seed)  # the gateway spreads the closing of idle sockets at random
    outcome, root = Outcome(program), logging.getLogger()
    handlers, level = root.handlers, root.level
    before = open_descriptors()
    try:
        with (
            patch.object(engine, "POLL_INTERVAL_S", POLL_INTERVAL_S),
            patch.object(handshake, "MAX_PENDING", MAX_PENDING),
            patch.object(listener, "CONNECTIONS_PER_SOCKET", program.setup.connections_per_socket),
            patch.object(connection_pool, "PROBE_RESERVE", PROBE_RESERVE),
            patch.object(handshake, "IDLE_PING_TIMEOUT_S", IDLE_PING_TIMEOUT_S),
        ):
            paired_loop.run(_run(program, files, outcome))
    except paired_loop.Deadlock as stuck:
        outcome.faults.append(f"stuck: {stuck}")
    except Exception as fault:
        outcome.faults.append(f"the machine itself failed: {fault!r}")
        logging.getLogger(__name__).debug("failed", exc_info=True)
    finally:
        root.handlers, root.level = handlers, level
        _cached_build_middleware.cache_clear()  # aiohttp keeps the handlers of the last thousand gateways
    if (more := open_descriptors() - before) > 0:
        outcome.faults.append(f"{more} descriptors left after the end")
    return outcome


async def _run(program: Program, files: Files, outcome: Outcome) -> None:
    world = World(program, files)
    logging.getLogger().handlers = [world.log]
    logging.getLogger().setLevel(logging.INFO)
    await world.open()
    at_rest = Census.of(world)
    chance = random.Random(program.seed)
    for step in program.steps:
        await asyncio.sleep(step.pause_s)
        done = await ACTIONS[step.action].perform(world, random.Random(step.seed))
        if done:
            outcome.trace.append(f"{world.loop.time() - paired_loop.BEGIN_S:9.4f} s  {step.action}: {done}")
    outcome.faults += await _until_let_in(world)
    if world.loss is not None:
        await world.loss
    await _until_heard(world)
    if any(peer.open and (not peer.reading or not peer.upgraded) for peer in world.peers):
        for peer in world.peers:
            peer.stop_sipping()
        await asyncio.sleep(PATIENCE_S)
        for peer in world.peers:  # a peer learns that it was cut when it reads again
            stalled_s = peer.stalled_s
            peer.resume()
            peer.stalled_s = stalled_s
        await asyncio.sleep(0.1)
        if world.setup.tcp:
            await _until_delivered(world)
        outcome.faults += uncut_peers(world)
    for peer in world.peers:
        if peer.open:
            chance.choice([peer.reset, peer.vanish])()
    await asyncio.sleep(NOTICED_S)
    if world.open_sockets > (not world.listener.closed.done()):
        await asyncio.sleep(UNREAD_S)
    await asyncio.sleep(SETTLE_S - NOTICED_S)
    outcome.faults += speech_faults(world)
    if world.listener.resumed:
        at_rest.tasks[HANDLER] += 1
    if world.drain is None:
        if Census.of(world).more_than(at_rest):  # perhaps a keepalive of the listener is just under way
            await asyncio.sleep(TURN_OF_KEEPALIVE_S)
        outcome.faults += Census.of(world).more_than(at_rest)
        outcome.faults += await _speak_again(world)
    began_s = world.loop.time()
    await world.close()
    if (took_s := world.loop.time() - began_s) > CLOSED_WITHIN_S:
        outcome.faults.append(f"closing took {took_s:.0f} s")
    world.listener.transport.abort()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    outcome.digest = _digest(world, outcome.trace)
    after = Census.of(world)
    outcome.faults += [f"after the end: {name} left" for name in [*after.tasks, *after.timers]]
    outcome.faults += _unfair(world) + complaints(world)


async def _until_let_in(world: World) -> list[str]:
    """Waits until every insistent client has been let in; then the crowd leaves. Returns those that were not."""
    found = []
    if world.insistent:
        await asyncio.wait([each.task for each in world.insistent], timeout=LET_IN_S)
        for each in world.insistent:
            each.task.cancel()
            if each.waited_s > LET_IN_S and not {"drain", "engine lost"} & world.happened:
                found.append(
                    f"a caller below its share was not let in within {LET_IN_S:g} s ({each.refusals} refusals)"
                )
    if world.crowd is not None:
        await world.crowd.stop()
    return found


def _unfair(world: World) -> list[str]:
    return [fault for witness in world.witnesses for fault in witness.faults[:MAX_FAULTS]]


async def _until_delivered(world: World) -> None:
    """Waits until the peers know that they were cut: TCP tells them within some milliseconds of real time."""
    for _ in range(round(DELIVERED_S / DELIVERY_S)):
        if not uncut_peers(world):
            return
        _let_kernel_work()
        await asyncio.sleep(0)


def _let_kernel_work() -> None:
    time.sleep(DELIVERY_S)


async def _until_heard(world: World) -> None:
    """Waits until every listener's utterance has an end, at most as long as speech can take."""
    waiting = [one.over for one in world.utterances] + [request.over for request in world.requests]
    if waiting:
        await asyncio.wait(waiting, timeout=PATIENCE_S)


async def _speak_again(world: World) -> list[str]:
    """Once all peers have left and the engine is back, a new listener is served at once."""
    async with asyncio.timeout(READY_S):
        while not world.synthesizer.state.speaks:
            await asyncio.sleep(1)
    listener = await world.connect_listener()
    if listener.answered.result() != 101:
        return [f"afterwards a handshake was refused with {listener.answered.result()}"]
    received = listener.say(TEXTS[0])
    try:
        await received.ended(60)
    except TimeoutError:
        return ["afterwards an utterance did not end"]
    finally:
        listener.abort()
    if received.outcome != "done" or received.mismatch:
        return [f"afterwards an utterance ended by {received.outcome}: {received.mismatch or received.end}"]
    return []


def _digest(world: World, trace: Iterable[str]) -> str:
    seen = hashlib.sha256("\n".join(trace).encode())
    for received in world.utterances:
        seen.update(repr((received.outcome, received.over_s, received.playback.arrivals)).encode())
    for request in world.requests:
        seen.update(repr((request.first_audio_s, request.over_s, request.mismatch)).encode())
    for peer in world.peers:
        seen.update(repr((peer.close_code, peer.closed_s)).encode())
    return seen.hexdigest()


def shrink(failed: Outcome, files: Files) -> Outcome:
    """The failing program with as few steps as leaving them out one by one allows."""
    least, number = failed, len(failed.program.steps) - 1
    while number >= 0:
        outcome = execute(least.program.without(number), files)
        if outcome.kinds & failed.kinds:
            least = outcome
        number -= 1
    return least


def report(outcome: Outcome) -> str:
    """The setup, the steps and the faults of a run, for people."""
    lines = [
        f"seed {outcome.program.seed}: {outcome.program.setup}",
        *outcome.trace,
        *(f"  FAULT {fault}" for fault in outcome.faults),
    ]
    return "\n".join(lines)
