"""The JavaScript client in Node, against the fake gateway."""

from __future__ import annotations

import asyncio
import hashlib
import json
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from fakes.gateway import loopback
from fakes.gateway.cut_proxy import CutProxy, cut_proxy
from fakes.gateway.packet_encoder import s16le
from fakes.gateway.protocol_server import FakeGateway, error_message, fake_gateway, respond
from fakes.pipeline.tone_synthesizer import tone_pcm
from fakes.waiting import until
from voxgate.gateway.access.keys import hash_key
from voxgate.gateway.server import Gateway

from .node import node_version, run_script

SCRIPT = Path(__file__).with_name("speak.mjs")
pytestmark = pytest.mark.skipif(node_version() < 20, reason="no Node 22 on this machine (20 does for the tests)")


async def run(gateway: FakeGateway | Gateway | CutProxy, *arguments: str) -> Any:
    url = gateway.url if isinstance(gateway, FakeGateway) else f"ws://127.0.0.1:{gateway.port}"
    return await run_script(SCRIPT, url, *arguments)


async def test_text_becomes_audio() -> None:
    async with fake_gateway() as gateway:
        result = await run(gateway, "speak")
    assert result["samples"] == 12 * 1920
    assert result["voice"] == "hum"
    assert result["done"] == "done"
    assert result["pre_skip"] == 0
    assert {"started", "audio", "words", "done"} <= set(result["kinds"])
    assert [m["text"] for m in gateway.received if m["type"] == "text"] == ["Hel", "lo there."]


async def test_utterances_on_one_socket_do_not_mix() -> None:
    async with fake_gateway() as gateway:
        assert await run(gateway, "both") == [3 * 1920, 12 * 1920]


async def test_leaving_and_interrupting_stop_the_speech() -> None:
    async with fake_gateway() as gateway:
        gateway.hold_after = 4
        assert await run(gateway, "interrupt") == ["St", "op here"]
    stops = [(m["utterance"], m.get("played_ms")) for m in gateway.received if m["type"] == "interrupt"]
    assert stops == [("u1", None), ("u2", 161)]


async def test_repeated_interrupts_share_one_answer() -> None:
    async with fake_gateway() as gateway:
        gateway.hold_after = 4
        assert await run(gateway, "twice") == ["S", "S", "S"]
    assert len([m for m in gateway.received if m["type"] == "interrupt"]) == 1


async def test_held_speech_goes_on_from_what_was_heard() -> None:
    text = "The weather is fine today and will stay so."
    async with loopback.gateway() as served:
        result = await run(served, "hold", text)
    for played_ms, hold_ms, continued_ms in (result["first"], result["second"]):
        assert (hold_ms, continued_ms) == (5000, played_ms)
    assert result["sha256"] == hashlib.sha256(s16le(tone_pcm(text))).hexdigest()
    assert result["log"] == ["started", "interrupted", "continued", "done", "interrupted", "continued", "done"]
    assert (result["refused"], result["late"]) == ("utterance_ended", "utterance_ended")


async def test_refused_hold_leaves_the_speech_as_it_is() -> None:
    text = "The weather is fine today and will stay so."
    async with loopback.gateway() as served:
        result = await run(served, "hold_refused", text)
    assert (result["refused"], result["done"]) == ("bad_message", "done")
    assert result["sha256"] == hashlib.sha256(s16le(tone_pcm(text))).hexdigest()


async def test_interrupt_of_a_lost_utterance_fails_at_once() -> None:
    async with fake_gateway() as gateway:
        gateway.script["Boom."] = [1011]
        # The code would be "timeout" if the client waited for the answer.
        assert (await run(gateway, "interrupt_lost"))["code"] == "session_lost"


async def test_finished_utterance_can_still_be_interrupted() -> None:
    async with fake_gateway() as gateway:
        assert await run(gateway, "late") == "A"


async def test_gateway_error_has_a_type() -> None:
    async with fake_gateway() as gateway:
        gateway.script["Boom."] = [error_message("engine_lost", "u1", retryable=True)]
        result = await run(gateway, "error")
    assert (result["name"], result["code"], result["retryable"]) == ("VoxgateError", "engine_lost", True)


async def test_refused_message_does_not_end_other_utterances() -> None:
    async with fake_gateway() as gateway:
        refused = [json.dumps(error_message("bad_message")), error_message("rate_limited", "u1", retryable=True)]
        gateway.script["Bad."] = refused
        assert await run(gateway, "refused_message") == {"code": "rate_limited", "samples": 4 * 1920}
    stops = [message["utterance"] for message in gateway.received if message["type"] == "interrupt"]
    assert stops == ["u1"], "the gateway would speak on with text missing"


async def test_missing_audio_at_the_end_is_detected() -> None:
    async with fake_gateway() as gateway:
        gateway.missing_samples = 1920
        result = await run(gateway, "error")
    assert (result["code"], "samples" in result["message"]) == ("protocol_violation", True)


async def test_lost_socket_ends_every_utterance() -> None:
    async with fake_gateway() as gateway:
        gateway.script["Boom."] = [1011]
        speech, next_one = await run(gateway, "lost")
    assert (speech["code"], next_one["code"]) == ("session_lost", "session_lost")


async def test_unread_audio_is_bounded() -> None:
    async with fake_gateway() as gateway:
        assert (await run(gateway, "unread"))["code"] == "slow_consumer"
    assert gateway.received[-1]["type"] == "interrupt"


async def test_refusal_is_reported() -> None:
    async with fake_gateway() as gateway:
        gateway.refuse = lambda: respond(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "at_capacity", "message": "full"})
        result = await run(gateway, "refused")
    assert (result["code"], result["retryable"]) == ("unreachable", True)


async def test_urls_are_accepted_in_common_forms() -> None:
    async with fake_gateway() as gateway:
        urls = await run(gateway, "urls")
    assert urls == [
        "ws://host:1/v1/speech",
        "ws://host:1/v1/speech",
        "wss://host/v1/speech",
        "wss://host/v1/speech",
    ]


async def test_key_opens_a_session_and_is_in_no_url() -> None:
    async with loopback.gateway(keys=(f"ada={hash_key('vg_right-key')}",)) as served:
        assert await run(served, "key") == "done"


async def test_client_uses_what_the_protocol_has_beyond_its_first_edition() -> None:
    """The key in a message, defaults, the length ahead of the end, limits, UTF-16 lengths, an interrupt of all."""
    async with loopback.gateway(keys=(f"ada={hash_key('vg_right-key')}",), key_characters_per_minute=6000) as served:
        result = await run(served, "grown")
    assert result == {
        "named": True,
        "kinds": True,
        "voice": True,
        "quota": ["characters_left", "characters_per_minute"],
        "refused": ["text_too_long", 23],
        "answers": ["interrupted", "interrupted"],
    }


async def test_client_is_told_that_the_talker_waits_for_text() -> None:
    async with loopback.gateway() as served:
        result = await run(served, "starving")
    assert result == {"told": [True], "characters": len("Let me see, well.")}


async def test_refusal_is_thrown_by_the_next_call_about_the_text() -> None:
    async with fake_gateway() as gateway:
        gateway.script["Bad."] = [error_message("rate_limited", retryable=True, characters=0) | {"id": "text-1"}]
        assert await run(gateway, "refused_fragment") == {"warning": "rate_limited", "thrown": "text-1", "over": False}


@pytest.mark.parametrize(
    ("scenario", "code"),
    [
        ("bad_key", "unauthorized"),
        ("no_websocket", "unsupported"),
        ("bad_url", "invalid_address"),
        ("ftp", "invalid_address"),
    ],
)
async def test_call_that_cannot_connect_names_its_mistake(scenario: str, code: str) -> None:
    async with fake_gateway() as gateway:
        result = await run(gateway, scenario)
    assert (result["name"], result["code"], result["retryable"]) == ("VoxgateError", code, False)


async def test_second_loop_is_refused_and_the_first_goes_on() -> None:
    async with fake_gateway() as gateway:
        first, second = await run(gateway, "second_loop")
    assert (first["samples"], second["code"]) == (6 * 1920, "already_reading")


# A lost connection

LOST_TEXT = "The weather is fine today and will stay so until the end."


def messages_sent(served: Gateway) -> int:
    """Audio messages of the utterance under way."""
    return max((one.outbox.sent_messages for session in served._sessions for one in session.active), default=0)


@pytest.mark.parametrize("loss", ["cut", "stop"])
async def test_lost_connection_is_replaced_without_a_gap(loss: str) -> None:
    """Also one that hangs: it is given up after 4 s of silence."""
    async with loopback.gateway() as served, cut_proxy(served.port) as proxy:
        speaking = asyncio.create_task(run(proxy, "disturbed"))
        losses = 2 if loss == "cut" else 1
        for number in range(1, losses + 1):
            await until(lambda sent=7 * number: messages_sent(served) >= sent)
            if loss == "cut":
                proxy.cut()
            else:
                proxy.stop()
                proxy.go_on(forget=True)
            await until(lambda accepted=number + 1: proxy.accepted >= accepted)
        await until(lambda: messages_sent(served) > 7 * losses)
        proxy.cut(-1)  # Node would not end while it has a connection that hangs
        result = await speaking
    assert result["changes"] == ["reconnecting", "resumed"] * losses
    assert result["done"] == "done"
    assert result["sha256"] == hashlib.sha256(s16le(tone_pcm(LOST_TEXT, 3))).hexdigest()


async def test_busy_program_loses_no_connection() -> None:
    async with loopback.gateway() as served:
        assert await run(served, "busy")


@pytest.mark.parametrize("loss", ["killed", "drained"])
async def test_another_gateway_goes_on_without_a_gap(loss: str) -> None:
    async with loopback.gateway() as first, loopback.gateway() as second, cut_proxy(first.port) as proxy:
        speaking = asyncio.create_task(run(proxy, "disturbed"))
        await until(lambda: messages_sent(first) >= 7)
        proxy.redirect(second.port)
        if loss == "killed":
            proxy.cut()
        else:
            await first.drain()  # ends when the utterance has left
        result = await speaking
        assert result["changes"] == (["reconnecting", "resumed"] if loss == "killed" else ["resumed"])
        assert result["done"] == "done"
        assert result["sha256"] == hashlib.sha256(s16le(tone_pcm(LOST_TEXT, 3))).hexdigest()


RETRACTED_TEXT = "\U0001f600 is what you see when the weather is fine, all day long and at night."
SAID_INSTEAD = "\U0001f600, that is what I wanted to tell you about the weather of today."


@pytest.mark.parametrize("moves", [False, True])
async def test_text_is_taken_back(moves: bool) -> None:
    """Offsets are in UTF-16 units; another gateway may go on afterwards."""
    async with loopback.gateway() as first, loopback.gateway() as second, cut_proxy(first.port) as proxy:
        speaking = asyncio.create_task(run(proxy, "retracted"))
        if moves:
            await until(lambda: messages_sent(first) >= 16)
            proxy.redirect(second.port)
            proxy.cut()
        result = await speaking
    answer = result["answer"]
    at = answer["characters"] - 1  # the first character takes two units
    kept = RETRACTED_TEXT[:at]
    assert answer["text"] == RETRACTED_TEXT[at:]
    assert 5 <= at < 40
    assert result["sha256"] == hashlib.sha256(s16le(tone_pcm(kept + SAID_INSTEAD, 3))).hexdigest()
    assert result["words"] == (kept + SAID_INSTEAD).split()
    assert result["done"]["characters"] == len(kept + SAID_INSTEAD) + 2
    assert result["late"] == "utterance_ended"


async def test_loss_is_reported_when_the_session_cannot_be_resumed() -> None:
    async with loopback.gateway(resume_s=1, checkpoints=False) as served, cut_proxy(served.port) as proxy:
        speaking = asyncio.create_task(run(proxy, "given_up"))
        await until(lambda: messages_sent(served) > 0)
        proxy.stop()  # for new connections, too
        proxy.cut()
        result = await speaking
    assert (result["code"], result["changes"][-1]) == ("session_lost", "reconnecting")
