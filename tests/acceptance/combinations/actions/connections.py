"""Actions that open connections: of listeners, peers, orchestrators and load balancers."""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING

from ...testbed.raw_websocket import TEXT, frame, upgrade_request
from ..crowd import Crowd, Insistent
from ..hostile_input import (
    CARTESIA_FORMAT,
    ODD_HEADS,
    READ_PATHS,
    SOCKET_PATHS,
    SPEECH_PATHS,
    TEXTS,
    credentials,
    with_query,
)
from ..peers import HOST, Peer, Probe, Request, connect
from .table import ActionTable

if TYPE_CHECKING:
    from ..world import World

ACTIONS = ActionTable()


MAX_UTTERANCES = 6
"""Utterances of a listener at once: less than a socket may have, with the insistent ones."""
MAX_INSISTENT = 2
PROBED = {
    "/healthz": frozenset({200}),
    "/readyz": frozenset({200, 503}),
    "/metrics": frozenset({200}),
}
"""Documents of orchestrators, with the statuses of their answers."""


@ACTIONS.add(6)
async def listen(world: World, chance: random.Random) -> str:
    """A listener asks for speech on its socket, within the limits that it was told."""
    if sum(not each.over.done() for each in world.utterances) >= MAX_UTTERANCES:
        return ""
    if (listener := await world.present_listener()) is None:
        return ""
    text = chance.choice(TEXTS)
    world.say(listener, text)
    return repr(text)


@ACTIONS.add(3)
async def request(world: World, chance: random.Random) -> str:
    """A client asks for speech over plain HTTP."""
    if "drain" in world.happened:
        return ""
    text = chance.choice(TEXTS)
    client = Request(text, world.listener_headers)
    world.requests.append(client)
    await connect(client, world.gateway.port, tls=world.tls, tcp=world.setup.tcp)
    return repr(text)


def any_credentials(world: World, chance: random.Random) -> tuple[tuple[str, ...], str]:
    return credentials(chance) if world.setup.keys else ((), "")


@ACTIONS.add(14)
async def open_socket(world: World, chance: random.Random) -> str:
    """A peer opens a WebSocket of any protocol."""
    protocol = chance.choice(["native", "native", "native", "elevenlabs", "deepgram", "cartesia"])
    headers, query = any_credentials(world, chance)
    path = with_query(chance.choice(SOCKET_PATHS[protocol]), query)
    if protocol == "native" and chance.random() < 0.5:
        path = with_query(path, chance.choice(["resume=new", "resume=new&checkpoints=1"]))
    request = upgrade_request(HOST, path, headers)
    if early := chance.random() < 0.04:  # frames before the handshake is answered
        request += frame(TEXT, b'{"type":"ping"}') * 3
    added = await world.add_peer(Peer(request, protocol, headers), chance)
    return f"{path} {headers}{' with early frames' * early}" if added else ""


@ACTIONS.add(5)
async def post_speech(world: World, chance: random.Random) -> str:
    """A peer asks for speech over plain HTTP, perhaps with a body that is late, wrong or missing."""
    path = chance.choice(SPEECH_PATHS)
    headers, query = any_credentials(world, chance)
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


@ACTIONS.add(4)
async def get_document(world: World, chance: random.Random) -> str:
    """A peer reads a page or a document, several times over the same connection."""
    path, count = chance.choice(READ_PATHS), chance.choice([1, 1, 40])
    headers, query = any_credentials(world, chance)
    lines = [f"{chance.choice(['GET', 'HEAD', 'POST'])} {with_query(path, query)} HTTP/1.1", f"Host: {HOST}", *headers]
    data = "\r\n".join([*lines, "Content-Length: 0", "\r\n"]).encode() * count
    port = world.gateway.admin_port if chance.random() < 0.2 else None
    return f"{count} x {lines[0]}" if await world.add_peer(Peer(data, "http"), chance, port) else ""


@ACTIONS.add(4)
async def open_strangely(world: World, chance: random.Random) -> str:
    """A peer sends nothing, half a head, or a head that no server understands."""
    half = upgrade_request(HOST)[: chance.randrange(120)]
    first = chance.choice([b"", half, *ODD_HEADS])
    return repr(first[:60]) if await world.add_peer(Peer(first, "http"), chance, plain=chance.random() < 0.5) else ""


@ACTIONS.add(3)
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


@ACTIONS.add(1)
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


@ACTIONS.add(3)
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


@ACTIONS.add(1)
async def ask_agent(world: World, chance: random.Random) -> str:
    """A load balancer asks for the free capacity."""
    port = world.gateway.haproxy_agent_port
    return "asked" if port and await world.add_peer(Peer(b"", "http"), chance, port) else ""
