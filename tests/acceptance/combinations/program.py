"""A program: the settings of a gateway, and the steps that clients, network, engine and operator take.

It follows from its seed alone. Each step has a seed of its own, so that a program stays meaningful without some of its
steps: a failing one is shrunk that way.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .actions import ACTIONS
from .actions.connections import open_socket

PAUSES_S = (0.0, 0.0001, 0.02, 0.3, 1.2, 3.5, 6.0, 12.0, 31.0)
PAUSE_WEIGHTS = (50, 10, 12, 12, 8, 3, 3, 1, 1)
"""Most steps overlap; now and then each deadline passes (docs/limits.md)."""
EMPHASIS = (0, 0.5, 1, 1, 6)
"""Each program leaves out some actions and prefers others: what needs several of a kind is rare among all kinds."""
MIN_STEPS, MAX_STEPS = 4, 32


@dataclass(frozen=True)
class Setup:
    """The gateway and the engine of one run. Small limits, so that a few clients reach them."""

    slots: int
    queue_length: int
    queue_wait_ms: int
    sockets: int
    connections_per_socket: int
    """As `gateway.listener.CONNECTIONS_PER_SOCKET`; with one, connections run out before sockets."""
    messages_per_s: float
    text_idle_timeout_s: float
    slow_consumer_timeout_ms: int
    shutdown_grace_s: float
    keys: bool
    tls: bool
    admin: bool
    """Whether probes have a port of their own."""
    tcp: bool
    """Loopback TCP instead of pairs of sockets; see `testbed.paired_loop`."""
    frame_s: float
    chunk_frames: int
    close_s: float
    start_s: float


@dataclass(frozen=True)
class Step:
    """`pause_s` after the step before, the action of that name happens; `seed` decides its details."""

    pause_s: float
    action: str
    seed: int


@dataclass(frozen=True)
class Program:
    """What happens in one run."""

    seed: int
    setup: Setup
    steps: Sequence[Step]

    def without(self, number: int) -> Program:
        """The program without one step; those after it happen at the same time as before."""
        steps = list(self.steps)
        removed = steps.pop(number)
        if number < len(steps):
            steps[number] = replace(steps[number], pause_s=steps[number].pause_s + removed.pause_s)
        return replace(self, steps=tuple(steps))


def generate(seed: int) -> Program:
    """The program of a seed."""
    chance = random.Random(seed)
    setup = Setup(
        slots=chance.choice([1, 2, 2, 4]),
        queue_length=chance.choice([0, 2, 8]),
        queue_wait_ms=chance.choice([500, 3000]),
        sockets=chance.choice([6, 6, 1000]),
        connections_per_socket=chance.choice([1, 2, 2]),
        messages_per_s=chance.choice([20, 400]),
        text_idle_timeout_s=chance.choice([5, 180]),
        slow_consumer_timeout_ms=chance.choice([1000, 3000]),
        shutdown_grace_s=chance.choice([0, 3, 30]),
        keys=chance.random() < 0.5,
        tls=chance.random() < 0.06,
        admin=chance.random() < 0.7,
        tcp=chance.random() < 0.15,
        frame_s=chance.choice([0.0, 0.01, 0.04]),
        chunk_frames=chance.choice([1, 1, 4]),
        close_s=chance.choice([0.0, 0.0, 0.05, 0.5]),
        start_s=chance.choice([0.0, 0.0, 1.0]),
    )
    names = list(ACTIONS)
    weights = [action.weight * chance.choice(EMPHASIS) for action in ACTIONS.values()]
    weights[names.index(open_socket.__name__)] = 2 + sum(weights) / 8
    actions = chance.choices(names, weights, k=chance.randint(MIN_STEPS, MAX_STEPS))
    pauses_s = chance.choices(PAUSES_S, PAUSE_WEIGHTS, k=len(actions))
    steps = [Step(pause_s, name, chance.randrange(1 << 30)) for pause_s, name in zip(pauses_s, actions, strict=True)]
    return Program(seed, setup, tuple(steps))
