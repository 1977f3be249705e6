"""Everything that clients, the network, the engine and the operator can do, with the weight of each action.

An action returns what it did, for the trace of a failing run; an empty text when it had nothing to act on.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxgate.pipeline.errors import EngineLost, GenerationFailed
from voxgate.pipeline.interface import EngineState

from ..testbed.raw_websocket import TEXT, frame, upgrade_request
from .crowd import Crowd, Insistent
from .hostile_input import (
    CARTESIA_FORMAT,
    ODD_FRAMES,
    ODD_HEADS,
    PEER_KEY,
    READ_PATHS,
    SOCKET_PATHS,
    SPEECH_PATHS,
    TEXTS,
    credentials,
    flood_of,
    message,
    restore_of,
    text_frame,
    with_query,
)
from .peers import HOST, Peer, Probe, Request, connect

if TYPE_CHECKING:
    from .world import World

Perform = Callable[["World", random.Random], Awaitable[str]]


@dataclass(frozen=True)
class Action:
    """`weight`: how often it is drawn, relative to the others."""

    weight: float
    perform: Perform


ACTIONS: dict[str, Action] = {}


def action(weight: float) -> Callable[[Perform], Perform]:
    """Adds a function to the table, under its name."""

    def add(perform: Perform) -> Perform:
        ACTIONS[perform.__name__] = Action(weight, perform)
        return perform

    return add


# Clients that keep the rules

MAX_UTTERANCES = 6
"""Utterances of a listener at once: less than a socket may have, with the insistent ones."""
MAX_INSISTENT = 2
PROBED = {
    "/healthz": frozenset({200}),
    "/readyz": frozenset({200, 503}),
    "/metrics": frozenset({200}),
}
"""Documents of orchestrators, with the statuses of their answers."""


@action(6)
async def listen(world: World, chance: random.Random) -> str:
    """A listener asks for speech on its socket, within the limits that it was told."""
    if sum(not each.over.done() for each in world.utterances) >= MAX_UTTERANCES:
        return ""
    if (listener := await world.present_listener()) is None:
        return ""
    text = chance.choice(TEXTS)
    world.say(listener, text)
    return repr(text)


@action(3)
async def request(world: World, chance: random.Random) -> str:
    """A client asks for speech over plain HTTP."""
    if "drain" in world.happened:
        return ""
    text = chance.choice(TEXTS)
    client = Request(text, world.listener_headers)
    world.requests.append(client)
    await connect(client, world.gateway.port, tls=world.tls, tcp=world.setup.tcp)
    return repr(text)


# Connections of peers


def _credentials(world: World, chance: random.Random) -> tuple[tuple[str, ...], str]:
    return credentials(chance) if world.setup.keys else ((), "")


@action(14)
async def open_socket(world: World, chance: random.Random) -> str:
    """A peer opens a WebSocket of any protocol."""
    protocol = chance.choice(["native", "native", "native", "elevenlabs", "deepgram", "cartesia"])
    headers, query = _credentials(world, chance)
    path = with_query(chance.choice(SOCKET_PATHS[protocol]), query)
    if protocol == "native" and chance.random() < 0.5:
        path = with_query(path, chance.choice(["resume=new", "resume=new&checkpoints=1"]))
    request = upgrade_request(HOST, path, headers)
    if early := chance.random() < 0.04:  # frames before the handshake is answered
        request += frame(TEXT, b'{"type":"ping"}') * 3
    added = await world.add_peer(Peer(request, protocol, headers), chance)
    return f"{path} {headers}{' with early frames' * early}" if added else ""


@action(5)
async def post_speech(world: World, chance: random.Random) -> str:
    """A peer asks for speech over plain HTTP, perhaps with a body that is late, wrong or missing."""
    path = chance.choice(SPEECH_PATHS)
    headers, query = _credentials(world, chance)
    text = chance.choice(TEXTS) * chance.choice([1, 1, 8])
    fields = {"input": text, "text": text, "voice": "ada", "response_format": "pcm"}
    if path.startswith("/tts/"):
        fields = {"transcript": text, "output_format": CARTESIA_FORMAT, "add_timestamps": True}
    body = json.dumps(fields).encode()
    if chance.random() < 0.1:
        body = chance.choice([b"{", b"[]", b'{"input": 3, "text": 3}', b""])
    sent = chance.choice([len(body), len(body), len(body), len(body) // 2])
    lines = [f"POST {with_query(path, query)} HTTP/1.1", f"Host: {HOST}", *headers, f"Content-Length: {len(body)}"]
    data = "\r\n".join([*lines, "Content-Type: application/json", "\r\n"]).encode() + body[:sent]
    return f"{path}, {sent} of {len(body)} bytes" if await world.add_peer(Peer(data, "http"), chance) else ""


@action(4)
async def get_document(world: World, chance: random.Random) -> str:
    """A peer reads a page or a document, several times over the same connection."""
    path, count = chance.choice(READ_PATHS), chance.choice([1, 1, 40])
    headers, query = _credentials(world, chance)
    lines = [f"{chance.choice(['GET', 'HEAD', 'POST'])} {with_query(path, query)} HTTP/1.1", f"Host: {HOST}", *headers]
    data = "\r\n".join([*lines, "Content-Length: 0", "\r\n"]).encode() * count
    port = world.gateway.admin_port if chance.random() < 0.2 else None
    return f"{count} x {lines[0]}" if await world.add_peer(Peer(data, "http"), chance, port) else ""


@action(4)
async def open_strangely(world: World, chance: random.Random) -> str:
    """A peer sends nothing, half a head, or a head that no server understands."""
    half = upgrade_request(HOST)[: chance.randrange(120)]
    first = chance.choice([b"", half, *ODD_HEADS])
    return repr(first[:60]) if await world.add_peer(Peer(first, "http"), chance, plain=chance.random() < 0.5) else ""


@action(3)
async def probe(world: World, chance: random.Random) -> str:
    """An orchestrator looks at the gateway, on either port; it is owed an answer whatever the others do."""
    path, allowed = chance.choice(list(PROBED.items()))
    admin = world.gateway.admin_port if chance.random() < 0.5 else None
    if path == "/metrics" and admin is None:
        if world.setup.admin:
            allowed = frozenset({404, 503})
        elif world.setup.keys:
            allowed = frozenset({401, 503})
        else:
            allowed |= {503}  # no place is kept for it: that is what the admin port is for
    client = Probe(path, allowed)
    try:
        await connect(client, admin or world.gateway.port, tls=None if admin else world.tls, tcp=world.setup.tcp)
    except OSError:
        if "drain" not in world.happened:
            raise
        return ""
    world.probes.append(client)
    return f"{path}, {'admin' if admin else 'public'} port"


@action(1)
async def crowd(world: World, chance: random.Random) -> str:
    """A caller keeps asking for more speech than it can get, until every insistent client has been served."""
    if world.crowd is not None:
        return ""
    sockets, utterances = chance.choice([1, 2]), chance.choice([1, 3, 6])
    text, ended = chance.choice(TEXTS) * chance.choice([1, 3]), chance.random() < 0.7
    trickle_s = None if ended else chance.choice([None, 0.2, 0.7])
    world.crowd = Crowd(sockets, utterances, text, ended=ended, trickle_s=trickle_s)
    world.crowd.start(world)
    end = ", ended" if ended else f", then letters every {trickle_s} s"
    return f"{utterances} utterances of {len(text)} characters on each of {sockets} sockets{end}"


@action(3)
async def insist(world: World, chance: random.Random) -> str:
    """A listener asks for one utterance until it gets it, perhaps behind a crowd."""
    if world.setup.queue_length == 0 or "drain" in world.happened or len(world.insistent) >= MAX_INSISTENT:
        return ""
    crowded = await crowd(world, chance) if chance.random() < 0.7 else ""
    if crowded:
        await asyncio.sleep(chance.choice([0.1, 0.3, 1.2]))
    text = chance.choice(TEXTS)
    world.insistent.append(Insistent(text))
    world.insistent[-1].start(world)
    return repr(text) + (f", behind {crowded}" if crowded else "")


@action(1)
async def ask_agent(world: World, chance: random.Random) -> str:
    """A load balancer asks for the free capacity."""
    port = world.gateway.haproxy_agent_port
    return "asked" if port and await world.add_peer(Peer(b"", "http"), chance, port) else ""


PROSODIES: tuple[dict[str, Any], ...] = ({}, {}, {"rate": 0.5, "starving_ms": 200}, {"rate": 2.0, "volume": 0.3})
"""Options of an utterance that change what is spoken and what is told meanwhile."""


@action(16)
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


@action(5)
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


@action(20)
async def send_message(world: World, chance: random.Random) -> str:
    """A peer sends messages of its protocol, whatever the moment."""
    if (peer := world.pick(chance)) is None or peer.protocol == "http":
        return ""
    messages = [message(peer, chance) for _ in range(chance.choice([1, 1, 2, 4]))]
    peer.write(b"".join(text_frame(**fields) for fields in messages))
    return json.dumps(messages)[:200]


@action(3)
async def send_frame(world: World, chance: random.Random) -> str:
    """A peer sends a frame that breaks a rule, or a control frame."""
    if (peer := world.pick(chance)) is None or peer.protocol == "http":
        return ""
    name = chance.choice(list(ODD_FRAMES))
    peer.write(ODD_FRAMES[name])
    return name


@action(16)
async def flood(world: World, chance: random.Random) -> str:
    """A peer sends the same frames many times without a pause, and perhaps reads nothing from now on."""
    if (peer := world.pick(chance)) is None or peer.protocol == "http":
        return ""
    description, data = flood_of(peer, chance)
    if not (reading := chance.random() < 0.6):
        peer.stall()
    peer.write(data)
    return description + ", not read" * (not reading)


# The network


@action(10)
async def stall(world: World, chance: random.Random) -> str:
    """A peer stops reading."""
    if (peer := world.pick(chance)) is None:
        return ""
    peer.stall()
    return "stopped reading"


@action(3)
async def resume(world: World, chance: random.Random) -> str:
    """A peer that stopped reads again."""
    stalled = [peer for peer in world.peers if peer.open and not peer.reading]
    if not stalled:
        return ""
    chance.choice(stalled).resume()
    return "reads again"


@action(3)
async def read_slowly(world: World, chance: random.Random) -> str:
    """A peer reads a little at long intervals."""
    if (peer := world.pick(chance)) is None:
        return ""
    peer.stall()
    size, times, interval_s = chance.choice([1, 200, 4000]), chance.choice([5, 30]), chance.choice([0.1, 0.9, 2.5])
    peer.sips += [world.loop.call_later(number * interval_s, peer.sip, size) for number in range(1, times + 1)]
    return f"{size} bytes every {interval_s:g} s, {times} times"


@action(3)
async def half_close(world: World, chance: random.Random) -> str:
    """A peer sends the end of its stream and goes on reading."""
    if (peer := world.pick(chance)) is None:
        return ""
    peer.half_close()
    return "sent its end"


@action(4)
async def reset(world: World, chance: random.Random) -> str:
    """The connection of a peer is reset."""
    if (peer := world.pick(chance)) is None:
        return ""
    peer.reset()
    return "reset"


@action(3)
async def vanish(world: World, chance: random.Random) -> str:
    """A peer closes its connection without a closing handshake."""
    if (peer := world.pick(chance)) is None:
        return ""
    peer.vanish()
    return "closed"


@action(4)
async def lose_connection(world: World, chance: random.Random) -> str:
    """The listener loses its connection, mostly amid speech, and resumes its session while others go on."""
    said = await listen(world, chance) if chance.random() < 0.7 else ""
    await asyncio.sleep(chance.choice([0, 0.3, 1.2]))
    silent_s, pause_s = chance.choice([0, 0, 0.02, 0.3]), chance.choice([0, 0.02, 0.3, 1.2])
    lost = world.lose_listener(silent_s, pause_s)
    return f"after {silent_s:g} s without reading, for {pause_s:g} s, asked for {said or 'nothing'}" if lost else said


HELD_MS = 10_000
"""For how long a listener has its speech kept; it goes on earlier."""


@action(4)
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
    headers, query = _credentials(world, chance) if chance.random() < 0.2 else (peer.headers, "")
    path = with_query(peer.path_to_resume, query)
    other = Peer(upgrade_request(HOST, path, headers), "native", headers)
    other.received = peer.received
    if await world.add_peer(other, chance):
        await asyncio.wait([other.answered], timeout=1)
        other.write(text_frame(**(peer.resume_message | fields)))


@action(5)
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


@action(5)
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


@action(3)
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


# The engine


@action(1.5)
async def lose_engine(world: World, chance: random.Random) -> str:
    """The engine dies, and perhaps its next start fails."""
    if world.synthesizer.state is not EngineState.READY:
        return ""
    world.happened.add("engine lost")
    if failing := chance.random() < 0.2:
        world.script.start_failures.append(EngineLost("the start failed"))
    world.synthesizer.lose()
    return "lost" + ", the next start fails" * failing


@action(1)
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


@action(1)
async def confirm_late(world: World, chance: random.Random) -> str:
    """From now on the engine takes that long to confirm the end of a speech."""
    world.script.close_s = chance.choice([0.0, 0.3, 2.0])
    return f"after {world.script.close_s:g} s"


@action(1)
async def change_capacity(world: World, chance: random.Random) -> str:
    """The engine measured that it carries more or fewer utterances."""
    world.synthesizer.capacity = chance.randint(1, world.setup.slots)
    return f"{world.synthesizer.capacity}"


# The operator


@action(2)
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


@action(0.5)
async def drain(world: World, chance: random.Random) -> str:  # noqa: ARG001 - as every action
    """The gateway gets the request to shut down."""
    if world.drain is not None:
        return ""
    world.happened.add("drain")
    world.drain = asyncio.create_task(world.gateway.drain())
    return f"within {world.setup.shutdown_grace_s:g} s"
