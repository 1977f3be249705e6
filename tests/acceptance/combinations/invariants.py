"""What must hold after every run, whatever happened in it."""

from __future__ import annotations

import asyncio
import gc
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ..testbed.expected_audio import ReceivedUtterance
from ..testbed.paired_loop import PairedLoop
from .peers import Probe
from .world import World

STARTED_WITHIN_MS = 1000.0
"""From `started` to the first packet; the slowest engine makes a packet in 160 ms."""
UNDERRUN_BUFFER_MS = 200.0
PROBE_ANSWERED_WITHIN_S = 1.0
CLOSED_WITHIN_S = 8.0
"""`Gateway.close` takes at most its final grace periods."""

EXCUSED_OUTCOMES = {
    "engine lost": {"engine_not_ready"},
    "generation failed": {"generation_failed"},
    "drain": {"draining", "lost"},
}
"""Ends of a listener's utterance other than "done", by what happened."""
EXCUSED_STATUS = {"engine lost": {500, 503, 0}, "generation failed": {500, 0}, "drain": {503, 0}}
CROWDED_OUTCOMES, CROWDED_STATUS = {"at_capacity"}, {503}
"""Refusals while peers hold the slots."""
EXPECTED_COMPLAINTS = {
    "engine lost": r"engine lost; restarting in|engine restart failed",
    "broken files": r"(keys|certificate) not reloaded",
    "unexpected failure": r"reading a speech failed: RuntimeError\('failed alone'\)",
}
"""Records that the log must have, by what happened."""


@dataclass(frozen=True)
class Census:
    """Everything that a gateway can hold. Two gateways at rest hold the same."""

    held: dict[str, int]
    tasks: Counter[str]
    timers: Counter[str]
    descriptors: int

    @classmethod
    def of(cls, world: World) -> Census:
        """Looks into the gateway: these are the counts behind its limits."""
        loop = world.loop
        assert isinstance(loop, PairedLoop)
        gateway = world.gateway
        listener = gateway._listener
        callers = listener._access._callers.values()
        return cls(
            {
                "sessions": len(listener.sessions),
                "sockets": listener.sessions.total_open,
                "slots": gateway._admission.active,
                "places in the queue": gateway._admission.queued,
                "speeches of the engine": len(world.synthesizer.open_speeches),
                "speeches that close": listener._speech_closer.closing,
                "sockets of callers": sum(caller.sockets for caller in callers),
                "utterances of callers": sum(caller.utterances for caller in callers),
                "sockets that wait for a key": len(listener._authenticator._pending),
                "HTTP connections": len(listener._http._server.connections),
            },
            Counter(_name(task) for task in asyncio.all_tasks(loop) if task is not asyncio.current_task(loop)),
            Counter(str(getattr(handle._callback, "__qualname__", handle._callback)) for handle in loop.timers),
            open_descriptors(),
        )

    def more_than(self, other: Census) -> list[str]:
        """What is held here and not there."""
        found = [
            f"{count - other.held[name]} {name} left" for name, count in self.held.items() if count > other.held[name]
        ]
        found += [f"{count} x task {name} left" for name, count in (self.tasks - other.tasks).items()]
        found += [f"{count} x timer {name} left" for name, count in (self.timers - other.timers).items()]
        if self.descriptors > other.descriptors:
            found.append(f"{self.descriptors - other.descriptors} descriptors left")
        return found


def open_descriptors() -> int:
    """Descriptors of this process."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _name(task: asyncio.Task[object]) -> str:
    return str(getattr(task.get_coro(), "__qualname__", task.get_name()))


def uncut_peers(world: World) -> list[str]:
    """Peers that are still connected though they do not read, or never finished what they began to say."""
    found = []
    for peer in world.peers:
        if peer.left or peer.transport.is_closing():
            continue
        if peer.stalled_s is not None:
            found.append(
                f"a {peer.protocol} peer that has not read for {world.loop.time() - peer.stalled_s:.0f} s is not cut"
            )
        elif not peer.upgraded:
            found.append(f"an idle {peer.protocol} peer is not cut")
    return found


def speech_faults(world: World) -> list[str]:
    """What is wrong with the speech of the clients that keep the rules."""
    faults = (_utterance_fault(world, received) for received in world.utterances)
    found = [f"listener: {fault}" for fault in faults if fault]
    statuses = CROWDED_STATUS.union(*(EXCUSED_STATUS.get(what, set()) for what in world.happened))
    for request in world.requests:
        status = request.over.result() if request.over.done() else None
        if status == 200:
            if (fault := request.mismatch) and not {"engine lost", "generation failed", "drain"} & world.happened:
                found.append(f"request: {fault}")
        elif status not in statuses:
            found.append(f"request: {'no answer' if status is None else f'status {status}'}")
    return found + [
        f"probe of {probe.path}: {fault}" for probe in world.probes if (fault := _probe_fault(world, probe))
    ]


def _probe_fault(world: World, probe: Probe) -> str:
    if not probe.status:
        return "" if "drain" in world.happened else f"no answer of {probe.path}"
    if probe.status not in probe.allowed:
        return f"{probe.path} answered with {probe.status}"
    late = probe.waited_s > PROBE_ANSWERED_WITHIN_S
    return f"{probe.path} answered after {probe.waited_s:.1f} s" if late else ""


def _utterance_fault(world: World, received: ReceivedUtterance) -> str:
    if received.mismatch:
        return received.mismatch
    allowed = CROWDED_OUTCOMES.union(*(EXCUSED_OUTCOMES.get(what, set()) for what in world.happened))
    if received.outcome != "done":
        if received.outcome == "at_capacity" and received.started_s is not None and received not in world.held:
            return "at_capacity after it was started"
        lost = received.outcome == "lost" and received.may_be_lost
        return "" if lost or received.outcome in allowed else f"ended by {received.outcome} {received.end}"
    assert received.started_s is not None, "audio follows `started`"
    if "engine lost" in world.happened or received in world.disturbed:
        return ""  # it went on in the next engine or on the next connection, to the sample
    waited_ms = 1000 * (received.playback.arrivals[0][0] - received.started_s)
    if waited_ms > STARTED_WITHIN_MS:
        return f"first audio {waited_ms:.0f} ms after the start"
    underruns = received.playback.underruns(UNDERRUN_BUFFER_MS)
    return f"{underruns} underruns" if underruns else ""


def complaints(world: World) -> list[str]:
    """Errors and tracebacks in the log that nothing excuses. Collects garbage: exceptions in it are reported."""
    gc.collect()
    happened = [EXPECTED_COMPLAINTS[what] for what in sorted(world.happened) if what in EXPECTED_COMPLAINTS]
    return [f"log: {text}" for text in world.log.complaints if not any(re.match(each, text) for each in happened)]
