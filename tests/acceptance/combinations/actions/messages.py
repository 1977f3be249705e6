"""Actions of peers on an open WebSocket: speech, text taken back, and messages and frames that break rules."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

from ..hostile_input import ODD_FRAMES, TEXTS, flood_of, message, text_frame
from .table import ActionTable

if TYPE_CHECKING:
    from ..world import World

ACTIONS = ActionTable()


PROSODIES: tuple[dict[str, Any], ...] = ({}, {}, {"rate": 0.5, "starving_ms": 200}, {"rate": 2.0, "volume": 0.3})
"""Options of an utterance that change its speech and the messages about it."""


@ACTIONS.add(16)
async def speak(world: World, chance: random.Random) -> str:
    """A peer starts some utterances, paced or not, with or without text, ended or not, read or not."""
    if (peer := world.pick(chance, "native")) is None:
        return ""
    count = chance.choice([1, 2, 8])
    pacing, text = chance.choice(["none", "playback"]), chance.choice(["", *TEXTS]) * chance.choice([1, 1, 10])
    ended, reading = chance.random() < 0.7, chance.random() < 0.6
    if not reading:
        peer.stall()
    for _ in range(count):
        fields = {"utterance": f"u{peer.utterances}"}
        peer.utterances += 1
        words, prosody = chance.random() < 0.3, chance.choice(PROSODIES)
        asked = {"format": {"codec": "pcm"}, "pacing": pacing, "words": words, **prosody}
        peer.asked[fields["utterance"]] = {"text": text, **asked}
        peer.write(text_frame(type="start", **fields, **asked))
        if text:
            peer.write(text_frame(type="text", **fields, text=text))
        if ended:
            peer.write(text_frame(type="end", **fields))
    return f"{count} x {len(text)} characters, pacing {pacing}{', ended' * ended}{', not read' * (not reading)}"


@ACTIONS.add(5)
async def take_back(world: World, chance: random.Random) -> str:
    """A peer takes text of an utterance back, perhaps twice at once, and says something else or nothing."""
    if (peer := world.pick(chance, "native")) is None or not peer.utterances:
        return ""
    fields = {"utterance": f"u{chance.randrange(peer.utterances)}"}
    kept, times = chance.choice([0, 0, 5, 40, 10**6]), chance.choice([1, 1, 1, 2])
    text, ended = chance.choice(["", *TEXTS]), chance.random() < 0.5
    for _ in range(times):
        peer.write(text_frame(type="retract", **fields, characters=kept))
        if text:
            peer.write(text_frame(type="text", **fields, text=text))
    if ended:
        peer.write(text_frame(type="end", **fields))
    return f"{times} x {fields['utterance']} behind {kept}, then {len(text)} characters{', ended' * ended}"


@ACTIONS.add(20)
async def send_message(world: World, chance: random.Random) -> str:
    """A peer sends messages of its protocol, whatever the moment."""
    if (peer := world.pick(chance)) is None or peer.protocol == "http":
        return ""
    messages = [message(peer, chance) for _ in range(chance.choice([1, 1, 2, 4]))]
    peer.write(b"".join(text_frame(**fields) for fields in messages))
    return json.dumps(messages)[:200]


@ACTIONS.add(3)
async def send_frame(world: World, chance: random.Random) -> str:
    """A peer sends a frame that breaks a rule, or a control frame."""
    if (peer := world.pick(chance)) is None or peer.protocol == "http":
        return ""
    name = chance.choice(list(ODD_FRAMES))
    peer.write(ODD_FRAMES[name])
    return name


@ACTIONS.add(16)
async def flood(world: World, chance: random.Random) -> str:
    """A peer sends the same frames many times without a pause, and perhaps reads nothing from now on."""
    if (peer := world.pick(chance)) is None or peer.protocol == "http":
        return ""
    description, data = flood_of(peer, chance)
    if not (reading := chance.random() < 0.6):
        peer.stall()
    peer.write(data)
    return description + ", not read" * (not reading)
