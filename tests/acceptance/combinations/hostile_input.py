"""What peers send: paths, heads, credentials, messages, frames and floods, of every protocol, right and wrong."""

from __future__ import annotations

import json
import random
from typing import Any

from ..testbed.raw_websocket import BINARY, CLOSE, PING, PONG, TEXT, frame
from .peers import Peer

LISTENER_KEY, PEER_KEY, ROTATED_KEY = "vg_listener", "vg_peer", "vg_rotated"
TEXTS = (
    "The weather is fine today. ",
    "So it is. And it will stay so until the end of May, they say.",
    "Well!",
)
"""Few, because the expected audio of each is computed once."""

# Requests

SOCKET_PATHS = {
    "native": ("/v1/speech", "/v1/speech", "/v1/speech", "/v1/speech?auth=message"),
    "elevenlabs": tuple(
        f"/v1/text-to-speech/ada/{kind}?output_format=pcm_24000" for kind in ("multi-stream-input", "stream-input")
    ),
    "deepgram": tuple(f"/{version}/speak?encoding=linear16&sample_rate=24000" for version in ("v1", "v2")),
    "cartesia": ("/tts/websocket",),
}
SPEECH_PATHS = (
    "/v1/audio/speech",
    "/v1/text-to-speech/ada?output_format=pcm_24000",
    "/v1/text-to-speech/ada/stream?output_format=pcm_24000",
    "/v1/text-to-speech/ada/with-timestamps?output_format=pcm_24000",
    "/v1/speak?encoding=linear16&container=none&sample_rate=24000",
    "/tts/bytes",
    "/tts/sse",
)
CARTESIA_FORMAT = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
READ_PATHS = (
    "/healthz",
    "/readyz",
    "/metrics",
    "/v1/limits",
    "/v1/voices",
    "/v1/models",
    "/",
    "/nothing",
    "/%6detrics",
)
ODD_HEADS = (
    b"GET //[ HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET //[ HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    b"GET /v1/speech HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00",
    b"\r\n\r\n",
    b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n",
    b"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
)


_CREDENTIALS: list[tuple[float, tuple[str, ...], str]] = [
    (30, (f"Authorization: Bearer {PEER_KEY}",), ""),
    (2, (), ""),
    (1, ("Authorization: Bearer vg_wrong",), ""),
    (1, (f"Authorization: Bearer {ROTATED_KEY}",), ""),
    (1, (), f"token={PEER_KEY}"),
    (1, (f"Sec-WebSocket-Protocol: token, {PEER_KEY}",), ""),
    (1, (f"Sec-WebSocket-Protocol: token, {PEER_KEY}", "Sec-WebSocket-Protocol: other"), ""),
    (1, (f"Authorization: Bearer {PEER_KEY}",) * 2, ""),
    (1, (f"xi-api-key: {PEER_KEY}", "xi-api-key: vg_wrong"), ""),
]
"""Weight, header lines, query."""


def credentials(chance: random.Random) -> tuple[tuple[str, ...], str]:
    """Header lines and a query with the credential of a peer: mostly its key, sometimes another, none, or two."""
    _, headers, query = chance.choices(_CREDENTIALS, [weight for weight, *_ in _CREDENTIALS])[0]
    return headers, query


def with_query(path: str, query: str) -> str:
    """A path with a further query."""
    return path if not query else f"{path}{'&' if '?' in path else '?'}{query}"


# Messages


def _native(peer: Peer, chance: random.Random) -> dict[str, Any]:
    utterance = f"u{max(0, peer.utterances - chance.choice([1, 1, 1, 2, 5]))}"
    kinds: list[tuple[float, dict[str, Any]]] = [
        (6, {"type": "text", "utterance": utterance, "text": chance.choice(TEXTS)}),
        (1, {"type": "text", "utterance": utterance, "text": ""}),
        (1, {"type": "text", "utterance": utterance, "text": "x" * 2001}),
        (2, {"type": "flush", "utterance": utterance}),
        (4, {"type": "end", "utterance": utterance}),
        (3, {"type": "interrupt", "utterance": utterance}),
        (1, {"type": "interrupt", "utterance": utterance, "played_ms": chance.randrange(9000)}),
        (3, {"type": "interrupt", "utterance": utterance, "hold_ms": chance.choice([1, 700, 10_000, 10_001])}),
        (0.5, {"type": "interrupt", "hold_ms": 5000}),
        (3, {"type": "continue", "utterance": utterance}),
        (1, {"type": "retract", "utterance": utterance, "characters": chance.choice([0, 4, 10**6])}),
        (3, {"type": "ack", "utterance": utterance, "played_samples": chance.choice([0, 2000, 30_000, 2**53 - 1])}),
        (2, {"type": "ping", "id": "p"}),
        (1, {"type": "limits"}),
        (2, {"type": "received", "messages": max(0, peer.received - chance.choice([0, 0, 0, 1, 40]))}),
        (0.5, {"type": "received", "messages": 10**9}),
        (1, {"type": "interrupt"}),
        (1, {"type": "auth", "key": PEER_KEY}),
        (1, {"type": "defaults", "framing": chance.choice(["raw", "packets"]), "lead_ms": chance.choice([80, 1840])}),
        (0.5, {"type": "defaults", "lead_ms": 10**6, "voice": "unknown"}),
        (1, {"type": "start", "utterance": f"u{peer.utterances}", "offsets": "utf16", "framing": "raw"}),
        (1, {"type": "start", "utterance": utterance}),
        (0.5, {"type": "start", "utterance": utterance, "voice": "unknown"}),
        (0.5, {"type": "sing", "utterance": utterance}),
    ]
    return chance.choices([fields for _, fields in kinds], [weight for weight, _ in kinds])[0]


def _elevenlabs(_: Peer, chance: random.Random) -> dict[str, Any]:
    context, text = chance.choice("abcdef"), chance.choice(TEXTS)
    kinds: list[tuple[float, dict[str, Any]]] = [
        (2, {"text": " ", "context_id": context, "xi_api_key": PEER_KEY}),
        (1, {"text": " ", "context_id": context, "xi_api_key": "vg_wrong"}),
        (6, {"text": text, "context_id": context}),
        (3, {"text": text, "context_id": context, "flush": True}),
        (2, {"context_id": context, "flush": True}),
        (3, {"context_id": context, "close_context": True}),
        (1, {"text": ""}),
        (1, {"close_socket": True}),
    ]
    return chance.choices([fields for _, fields in kinds], [weight for weight, _ in kinds])[0]


def _deepgram(_: Peer, chance: random.Random) -> dict[str, Any]:
    kinds: list[tuple[float, dict[str, Any]]] = [
        (8, {"type": "Speak", "text": chance.choice(TEXTS)}),
        (5, {"type": "Flush"}),
        (2, {"type": "Clear"}),
        (2, {"type": "Interrupt", "playback_offset": {"value": chance.randrange(5000)}}),
        (1, {"type": "Configure", "speed": 1}),
        (1, {"type": "Close"}),
        (0.5, {"type": "Shout"}),
    ]
    return chance.choices([fields for _, fields in kinds], [weight for weight, _ in kinds])[0]


def _cartesia(_: Peer, chance: random.Random) -> dict[str, Any]:
    context, text = chance.choice("abcdef"), chance.choice(TEXTS)
    asked = {"context_id": context, "output_format": CARTESIA_FORMAT, "add_timestamps": chance.random() < 0.3}
    kinds: list[tuple[float, dict[str, Any]]] = [
        (6, asked | {"transcript": text, "continue": True}),
        (3, asked | {"transcript": text, "continue": True, "flush": True}),
        (3, asked | {"transcript": text, "generation_config": {"speed": chance.choice([0.6, 1.5]), "volume": 0.5}}),
        (2, asked | {"transcript": "", "continue": False}),
        (1, asked | {"transcript": text, "pronunciation_dict_id": "unknown"}),
        (3, {"context_id": context, "cancel": True}),
        (1, {"context_id": context, "transcript": text, "output_format": {"container": "mp3"}}),
        (0.5, {"context_id": 3, "transcript": None}),
    ]
    return chance.choices([fields for _, fields in kinds], [weight for weight, _ in kinds])[0]


_MESSAGES = {"native": _native, "elevenlabs": _elevenlabs, "deepgram": _deepgram, "cartesia": _cartesia}


def message(peer: Peer, chance: random.Random) -> dict[str, Any]:
    """A message of the peer's protocol, whether or not the moment allows it."""
    return _MESSAGES[peer.protocol](peer, chance)


def text_frame(**fields: Any) -> bytes:
    """The frame of a message."""
    return frame(TEXT, json.dumps(fields).encode())


# Checkpoints

RESTORED = ["right"] * 4 + [
    "in another order",
    "with another's parts",
    "with a damaged part",
    "without codes",
    "with another seed",
    "with audio that was never sent",
    "without text",
    "with another text",
]


def restore_of(
    peer: Peer, saved: tuple[Peer, str], other: tuple[Peer, str], chance: random.Random
) -> tuple[str, bytes]:
    """Messages with which `peer` goes on with a saved utterance: a description, and the bytes.

    `saved`, `other`: a peer, and the name of an utterance of which it has checkpoints.
    """
    (owner, name), (another, its_name) = saved, other
    parts, text = list(owner.checkpoints[name]), str(owner.asked[name]["text"])
    heard, at_once = chance.choice([0, 1, 20]), chance.randint(1, len(parts))
    fields = {key: value for key, value in owner.asked[name].items() if key != "text"}
    fields |= {"received": {"messages": heard}, "characters": len(text)}
    match kind := chance.choice(RESTORED):
        case "in another order":
            parts.reverse()
        case "with another's parts":
            parts = parts[:1] + another.checkpoints[its_name][1:]
        case "with a damaged part":
            parts[-1] = f"{parts[-1][:-8]}AAAA{parts[-1][-4:]}"
        case "without codes":
            parts = parts[:1]
        case "with another seed":
            fields["seed"] = 8
        case "with audio that was never sent":
            fields["received"] = {"messages": 2**40, "last": True, "words": 2**40}
        case "without text":
            text = ""
        case "with another text":
            text = chance.choice(TEXTS)
    utterance, ended = f"u{peer.utterances}", chance.random() < 0.7
    peer.utterances += 1
    messages: list[dict[str, Any]] = [{"type": "restore", **fields, "checkpoint": parts[:at_once]}]
    messages += [{"type": "checkpoint", "parts": parts[at_once:]}] if parts[at_once:] else []
    messages += [{"type": "text", "text": text}] if text else []
    messages += [{"type": "end"}] if ended else []
    data = b"".join(text_frame(utterance=utterance, **message) for message in messages)
    return f"{kind}, {len(parts)} parts, {heard} messages heard{', ended' * ended}", data


# Frames

ODD_FRAMES = {
    "no JSON": frame(TEXT, b"{"),
    "no UTF-8": frame(TEXT, b"\xff\xfe"),
    "binary": frame(BINARY, b"abc"),
    "unmasked": b"\x81\x02{}",
    "reserved bits": b"\xf1\x80" + bytes(4),
    "an unknown opcode": frame(5, b""),
    "a lonely continuation": frame(0, b"x"),
    "half a frame": frame(TEXT, b'{"type":"ping"}')[:9],
    "a huge length": b"\x81\xff" + (2**62).to_bytes(8, "big") + bytes(4),
    "too large": frame(TEXT, b" " * 70_000),
    "close 1000": frame(CLOSE, (1000).to_bytes(2, "big")),
    "close 4000": frame(CLOSE, (4000).to_bytes(2, "big") + b"bye"),
    "an invalid close": frame(CLOSE, b"\x00"),
    "a long pong": frame(PONG, bytes(125)),
}

BOUNDS, BOUND_WEIGHTS = (8, 20, 64, 100, 500), (1, 1, 4, 4, 1)
"""Sizes of floods are just above what the gateway queues and allows: faults lie where a bound has just been reached."""
_START_AND_STOP = (b'{"type":"start","utterance":"flood"}', b'{"type":"interrupt","utterance":"flood"}')
_CARTESIA_TURN = {"context_id": "x", "transcript": "Well! ", "continue": True, "flush": True}
_FLOODS: dict[str, dict[str, bytes]] = {
    "": {  # of any protocol
        "pings": frame(PING, bytes(125)),
        "pongs": frame(PONG, b"x"),
        "fragments": frame(0, b" ", last=False),
        "empty fragments": frame(0, b"", last=False),
    },
    "native": {
        "messages": frame(TEXT, b'{"type":"ping"}'),
        "unknown utterances": frame(TEXT, b'{"type":"text","utterance":"x","text":"y"}'),
        "starts": b"".join(frame(TEXT, message) for message in _START_AND_STOP),
    },
    "elevenlabs": {"contexts": frame(TEXT, b'{"text":"Well! ","context_id":"x","flush":true}')},
    "deepgram": {"turns": frame(TEXT, b'{"type":"Speak","text":"Well! "}') + frame(TEXT, b'{"type":"Flush"}')},
    "cartesia": {"flushes": frame(TEXT, json.dumps(_CARTESIA_TURN | {"output_format": CARTESIA_FORMAT}).encode())},
}
_OFTEN = ("pings", "messages", "contexts", "turns", "flushes")


def flood_of(peer: Peer, chance: random.Random) -> tuple[str, bytes]:
    """Up to three kinds of frames in turn, many times: a description, and the bytes."""
    frames = _FLOODS[""] | _FLOODS[peer.protocol]
    weights = [3 if name in _OFTEN else 1 for name in frames]
    names = chance.choices(list(frames), weights, k=chance.choice([1, 2, 2, 3]))
    count = chance.choices(BOUNDS, BOUND_WEIGHTS)[0] + chance.randint(1, 7)
    first = frame(TEXT, b" ", last=False) if "fragments" in " ".join(names) else b""
    return f"{count} x {', '.join(names)}", first + b"".join(frames[name] for name in names) * count
