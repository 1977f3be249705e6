"""Actions of the network: peers that read slowly or vanish."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from .table import ActionTable

if TYPE_CHECKING:
    from ..world import World

ACTIONS = ActionTable()


@ACTIONS.add(10)
async def stall(world: World, chance: random.Random) -> str:
    """A peer stops reading."""
    if (peer := world.pick(chance)) is None:
        return ""
    peer.stall()
    return "stopped reading"


@ACTIONS.add(3)
async def resume(world: World, chance: random.Random) -> str:
    """A peer that stopped reads again."""
    stalled = [peer for peer in world.peers if peer.open and not peer.reading]
    if not stalled:
        return ""
    chance.choice(stalled).resume()
    return "reads again"


@ACTIONS.add(3)
async def read_slowly(world: World, chance: random.Random) -> str:
    """A peer reads a little at long intervals."""
    if (peer := world.pick(chance)) is None:
        return ""
    peer.stall()
    size, times, interval_s = chance.choice([1, 200, 4000]), chance.choice([5, 30]), chance.choice([0.1, 0.9, 2.5])
    peer.sips += [world.loop.call_later(number * interval_s, peer.sip, size) for number in range(1, times + 1)]
    return f"{size} bytes every {interval_s:g} s, {times} times"


@ACTIONS.add(3)
async def half_close(world: World, chance: random.Random) -> str:
    """A peer sends the end of its stream and goes on reading."""
    if (peer := world.pick(chance)) is None:
        return ""
    peer.half_close()
    return "sent its end"


@ACTIONS.add(4)
async def reset(world: World, chance: random.Random) -> str:
    """The connection of a peer is reset."""
    if (peer := world.pick(chance)) is None:
        return ""
    peer.reset()
    return "reset"


@ACTIONS.add(3)
async def vanish(world: World, chance: random.Random) -> str:
    """A peer closes its connection without a closing handshake."""
    if (peer := world.pick(chance)) is None:
        return ""
    peer.vanish()
    return "closed"
