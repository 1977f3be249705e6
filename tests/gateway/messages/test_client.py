"""Messages from the client: parsing, errors that name the invalid field, and the pipeline's request of a start."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from voxgate.codecs.format import OutputFormat
from voxgate.gateway.errors import QUOTED_CHARACTERS
from voxgate.gateway.messages.client import Start, Text, parse_message
from voxgate.gateway.messages.parsing import MessageReference, parse_json, read_reference
from voxgate.pipeline.errors import BadMessage
from voxgate.pipeline.interface import TextLayout
from voxgate.pipeline.text.sanitize import stand_in

START = {"type": "start", "utterance": "a"}

GOOD: list[dict[str, Any]] = [
    START,
    {
        **START,
        "voice": "ada",
        "language": "english",
        "instructions": "slowly",
        "format": {"codec": "opus", "sample_rate": 48000, "bitrate": 64000, "packet_ms": 20},
        "sampling": {
            "temperature": 0,
            "top_k": 0,
            "top_p": 1.0,
            "repetition_penalty": 1.05,
            "max_frames": 100,
        },
        "seed": 0,
        "words": True,
        "visemes": True,
        "pacing": "none",
    },
    {"type": "text", "utterance": "a", "text": ""},
    {"type": "text", "utterance": "a", "text": "\u0000\U0001f600 <|im_end|>"},
    {"type": "flush", "utterance": "a"},
    {"type": "end", "utterance": "a"},
    {"type": "interrupt", "utterance": "a"},
    {"type": "interrupt", "utterance": "a", "played_ms": 17},
    {"type": "interrupt", "utterance": "a", "played_ms": 17, "hold_ms": 1},
    {"type": "interrupt", "hold_ms": 60_000},
    {"type": "continue", "utterance": "a"},
    {"type": "ack", "utterance": "a", "played_samples": 1920},
    {"type": "ping"},
    {"type": "ping", "id": "x"},
]

BAD: list[tuple[str, str | None]] = [
    ("", None),
    ("{", None),
    ("[]", None),
    ("null", None),
    ("NaN", None),
    ('"start"', None),
    ("{}", "type"),
    ('{"type":1}', "type"),
    ('{"type":"speak"}', "type"),
    ('{"type":"start"}', "utterance"),
    ('{"type":"start","utterance":""}', "utterance"),
    ('{"type":"start","utterance":"' + "x" * 65 + '"}', "utterance"),
    ('{"type":"start","utterance":7}', "utterance"),
    ('{"type":"start","utterance":"a","vioce":"ada"}', "vioce"),
    ('{"type":"start","utterance":"a","seed":-1}', "seed"),
    ('{"type":"start","utterance":"a","seed":1.5}', "seed"),
    ('{"type":"start","utterance":"a","seed":9007199254740992}', "seed"),
    ('{"type":"start","utterance":"a","words":"yes"}', "words"),
    ('{"type":"start","utterance":"a","visemes":1}', "visemes"),
    ('{"type":"start","utterance":"a","pacing":"fast"}', "pacing"),
    ('{"type":"start","utterance":"a","instructions":"' + "x" * 1001 + '"}', "instructions"),
    ('{"type":"start","utterance":"a","format":"pcm"}', "format"),
    ('{"type":"start","utterance":"a","format":{"rate":1}}', "format.rate"),
    ('{"type":"start","utterance":"a","format":{"sample_rate":"24000"}}', "format.sample_rate"),
    ('{"type":"start","utterance":"a","sampling":{"temperature":2.1}}', "sampling.temperature"),
    ('{"type":"start","utterance":"a","sampling":{"temperature":NaN}}', "sampling.temperature"),
    ('{"type":"start","utterance":"a","sampling":{"top_p":0}}', "sampling.top_p"),
    ('{"type":"start","utterance":"a","sampling":{"repetition_penalty":0.5}}', "sampling.repetition_penalty"),
    ('{"type":"start","utterance":"a","sampling":{"max_frames":0}}', "sampling.max_frames"),
    ('{"type":"text","utterance":"a"}', "text"),
    ('{"type":"text","utterance":"a","text":null}', "text"),
    ('{"type":"text","utterance":"\\ud800","text":"a"}', "utterance"),
    ('{"type":"text","utterance":"a","text":"b","id":"\\ude00"}', "id"),
    ('{"type":"interrupt","utterance":"a","played_ms":-1}', "played_ms"),
    ('{"type":"interrupt","utterance":"a","played_ms":1e400}', "played_ms"),
    ('{"type":"ack","utterance":"a"}', "played_samples"),
    ('{"type":"ack","utterance":"a","played_samples":true}', "played_samples"),
    ("[" * 5000, None),
]


@pytest.mark.parametrize("fields", GOOD, ids=lambda f: f["type"])
def test_valid_message_keeps_every_field(fields: dict[str, Any]) -> None:
    message = parse_message(json.dumps(fields))
    assert message.type == fields["type"]
    assert message.model_dump(exclude_unset=True) == fields


@pytest.mark.parametrize(("text", "param"), BAD, ids=lambda v: repr(v)[:60])
def test_bad_message_names_the_field(text: str, param: str | None) -> None:
    with pytest.raises(BadMessage) as refused:
        parse_message(text)
    assert refused.value.param == param
    assert 0 < len(refused.value.message) <= QUOTED_CHARACTERS


@pytest.mark.parametrize("number", [9, 2.5, -1])
def test_refused_numbers_are_named_and_texts_are_not(number: float) -> None:
    with pytest.raises(BadMessage, match=f", got {number}$"):
        parse_message(json.dumps({**START, "rate": number}))
    with pytest.raises(BadMessage) as refused:
        parse_message(json.dumps({"type": "auth", "key": "k" * 5000}))
    assert "kkk" not in refused.value.message


def test_defaults_of_start() -> None:
    start = parse_message(json.dumps(START))
    assert isinstance(start, Start)
    assert start.format.audio_format() == OutputFormat("opus", 24_000, 32_000, 80)
    request = start.request("bob")
    assert (request.voice, request.language, request.seed, request.max_frames) == ("bob", "auto", None, None)
    assert (start.words, start.pacing) == (False, "playback")


def test_request_has_every_option_of_start() -> None:
    start = parse_message(json.dumps(GOOD[1]))
    assert isinstance(start, Start)
    request = start.request("bob")
    assert (request.voice, request.language, request.instructions) == ("ada", "english", "slowly")
    assert (request.seed, request.max_frames) == (0, 100)
    assert (request.sampling.temperature, request.sampling.top_p, request.sampling.top_k) == (0, 1.0, 0)


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        parse_message(text)
    except BadMessage:
        return
    assert json.loads(text)["type"]


def mutations(count: int, seed: int = 3) -> list[str]:
    """Returns valid messages with random damage: characters changed, cut or doubled, or two messages joined."""
    chance = random.Random(seed)
    texts = [json.dumps(fields) for fields in GOOD]
    damaged = []
    for _ in range(count):
        text = chance.choice(texts)
        for _ in range(chance.randrange(4)):
            at = chance.randrange(len(text) + 1)
            kind = chance.randrange(4)
            if kind == 0:
                text = text[:at] + chance.choice('{}[]",:\\\u0000é0-9eEtfn ') + text[at + 1 :]
            elif kind == 1:
                text = text[:at] + text[at + chance.randrange(6) :]
            elif kind == 2:
                text = text[:at] + text
            else:
                text = text[:at] + chance.choice(texts)[at:]
        damaged.append(text)
    return damaged


def test_damaged_messages_raise_only_bad_message() -> None:
    reasons = []
    for text in mutations(10_000):
        try:
            parse_message(text)
        except BadMessage as bad:
            reasons.append(bad.message)
    assert 1000 < len(reasons) < 9999, "valid and invalid messages both occur"
    assert max(map(len, reasons)) <= QUOTED_CHARACTERS


def test_request_follows_layout_and_trim_silence() -> None:
    plain = Start(type="start", utterance="a")
    assert plain.request("v").layout is TextLayout.STREAMING
    assert plain.request("v").trim_silence
    assert not plain.request("v", trim_silence=False).trim_silence
    asked = Start(type="start", utterance="a", layout="non_streaming", trim_silence=False)
    assert asked.request("v").layout is TextLayout.NON_STREAMING
    assert not asked.request("v").trim_silence


def test_client_overrides_the_default_of_normalise() -> None:
    plain = Start(type="start", utterance="a")
    assert [plain.request("v", normalise=default).normalise for default in (False, True)] == [False, True]
    for wanted in (False, True):
        asked = Start(type="start", utterance="a", normalise=wanted)
        assert [asked.request("v", normalise=default).normalise for default in (False, True)] == [wanted, wanted]


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        (r"a \ud83d", f"a {stand_in(0xD83D)}"),
        (r"\uDE00 b", f"{stand_in(0xDE00)} b"),
        (r"\ude00\ud83d", f"{stand_in(0xDE00)}{stand_in(0xD83D)}"),
        (r"\ud83d\ud83d\ude00", f"{stand_in(0xD83D)}\U0001f600"),
        (r"\ud83d\u0041", f"{stand_in(0xD83D)}A"),
        (r"\ud83d\ude00 \\ud83d \u00e4\n", "\U0001f600 \\ud83d ä\n"),
    ],
)
def test_half_of_a_surrogate_pair_is_text(escaped: str, text: str) -> None:
    """As a client escapes it that divides text between UTF-16 units."""
    payload = f'{{"type": "text", "utterance": "u", "id": "7", "text": "{escaped}"}}'
    message = parse_message(payload)
    assert isinstance(message, Text)
    assert message.text == text
    assert parse_json(Text, payload).text == parse_json(Text, payload.encode()).text == text


def test_refused_message_with_half_of_a_surrogate_pair_is_still_named() -> None:
    payload = r'{"type": "text", "utterance": "u", "id": "7", "text": "\ud83d", "more": 1}'
    with pytest.raises(BadMessage, match="Extra inputs"):
        parse_message(payload)
    assert read_reference(payload) == MessageReference("u", "7")


def test_body_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(BadMessage, match="JSON"):
        parse_json(Text, rb'{"type": "text", "utterance": "u", "text": "\ud83d ' + b"\xff" + b'"}')
