"""Actions of the engine and of the operator."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from voxgate.pipeline.errors import EngineLost, GenerationFailed
from voxgate.pipeline.interface import EngineState

from .table import ActionTable

if TYPE_CHECKING:
    from ..world import World

ACTIONS = ActionTable()


@ACTIONS.add(1.5)
async def lose_engine(world: World, chance: random.Random) -> str:
    """The engine dies, and perhaps its next start fails."""
    if world.synthesizer.state is not EngineState.READY:
        return ""
    world.happened.add("engine lost")
    if failing := chance.random() < 0.2:
        world.script.start_failures.append(EngineLost("the start failed"))
    world.synthesizer.lose()
    return "lost" + ", the next start fails" * failing


@ACTIONS.add(1)
async def lose_codec(world: World, chance: random.Random) -> str:
    """The codec of one utterance fails, in a known way or not."""
    speeches = list(world.synthesizer.open_speeches)
    if not speeches:
        return ""
    world.happened.add("generation failed")
    known = chance.random() < 0.7
    chance.choice(speeches).lose(GenerationFailed("failed alone") if known else RuntimeError("failed alone"))
    if not known:
        world.happened.add("unexpected failure")
    return "known" if known else "unexpected"


@ACTIONS.add(1)
async def confirm_late(world: World, chance: random.Random) -> str:
    """From now on the engine takes that long to confirm the end of a speech."""
    world.script.close_s = chance.choice([0.0, 0.3, 2.0])
    return f"after {world.script.close_s:g} s"


@ACTIONS.add(1)
async def change_capacity(world: World, chance: random.Random) -> str:
    """The engine measured that it carries more or fewer utterances."""
    world.synthesizer.capacity = chance.randint(1, world.setup.slots)
    return f"{world.synthesizer.capacity}"


@ACTIONS.add(2)
async def reload(world: World, chance: random.Random) -> str:
    """Keys and certificate are replaced, by good or unusable ones, and read again."""
    keys, certificate = (
        chance.choice(["first", "rotated", "removed", "broken"]),
        chance.choice(["first", "second", "broken"]),
    )
    if world.setup.keys:
        world.files.put_keys(keys)
    if world.setup.tls:
        world.files.put_certificate(certificate)
    if "broken" in (keys, certificate):
        world.happened.add("broken files")
    world.gateway.reload()
    return f"keys {keys}, certificate {certificate}"


@ACTIONS.add(0.5)
async def drain(world: World, chance: random.Random) -> str:  # noqa: ARG001 - as every action
    """The gateway gets the request to shut down."""
    if world.drain is not None:
        return ""
    world.happened.add("drain")
    world.drain = asyncio.create_task(world.gateway.drain())
    return f"within {world.setup.shutdown_grace_s:g} s"
