"""An utterance that is interrupted for a while goes on from what was heard, as if nothing had happened."""

from __future__ import annotations

import asyncio

import pytest
from fakes.gateway.in_process import PCM, InProcessGateway, say
from fakes.gateway.packet_encoder import s16le
from fakes.pipeline.tone_synthesizer import tone_pcm
from fakes.virtual_time import run

from .hold_client import OTHER, PACKET_SAMPLES, RATE_HZ, TEXT, Ends, audio_behind, hold, spoken


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.5, 1.234, 4.9])
@pytest.mark.parametrize("held_s", [0.0, 0.3, 4.0])
@pytest.mark.parametrize("played", [None, "heard", "early"])
def test_held_utterance_goes_on_from_what_was_heard(after_s: float, held_s: float, played: str | None) -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT)
            await asyncio.sleep(after_s)
            played_ms = {None: None, "heard": 1000 * after_s, "early": 1000 * after_s - 130}[played]
            hold(socket, **({} if played_ms is None else {"played_ms": max(0, round(played_ms))}))
            answer = await socket.until("interrupted")
            assert answer["hold_ms"] == 10_000
            assert answer["text_spoken"] + answer["text_remaining"] == TEXT
            sent = len(socket.audio())
            await asyncio.sleep(held_s)
            assert len(socket.audio()) == sent, "audio of a held utterance"
            socket.put(type="continue", utterance="a")
            continued = await socket.until("continued")
            await socket.until("done")
            first = audio_behind(socket, "continued")[0][0]
            heard = answer["played_ms"] * RATE_HZ // 1000
            assert (first.seq, continued["played_ms"]) == (continued["seq"], answer["played_ms"])
            assert first.pts + continued["skip_samples"] == pytest.approx(heard, abs=RATE_HZ // 1000)
            assert continued["skip_samples"] < PACKET_SAMPLES
            assert spoken(socket) == s16le(tone_pcm(TEXT))
            assert len(socket.of("interrupted")) == len(socket.of("done")) == 1

    run(scene())


def test_utterance_that_is_not_continued_is_let_go_in_silence() -> None:
    async def scene() -> None:
        ends = Ends()
        async with InProcessGateway(observer=ends) as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT)
            await asyncio.sleep(1)
            hold(socket, hold_ms=2000)
            await socket.until("interrupted")
            await asyncio.sleep(1.9)
            assert ends.records == []
            assert gateway.admission.active == 1
            sent = len(socket.sent)
            await asyncio.sleep(1)
            assert [record.outcome for record in ends.records] == ["interrupted"]
            assert len(socket.sent) == sent
            assert gateway.admission.active == 0
            for message in ({"type": "continue"}, {"type": "text", "text": "more"}, {"type": "interrupt"}):
                socket.put(utterance="a", **message)
            await socket.until("error", 3)
            assert {error["code"] for error in socket.of("error")} == {"utterance_ended"}
            say(socket, "a", OTHER)
            await socket.until("done")

    run(scene())


def test_second_interrupt_lets_go_at_once_or_prolongs_the_hold_at_its_place() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT)
            await asyncio.sleep(1)
            hold(socket, hold_ms=1000)
            await asyncio.sleep(0.8)
            hold(socket, hold_ms=1500, played_ms=10)
            await asyncio.sleep(1.4)
            socket.put(type="continue", utterance="a")
            continued = await socket.until("continued")
            first, second = socket.of("interrupted")
            assert [first["hold_ms"], second["hold_ms"]] == [1000, 1500]
            assert first["played_ms"] == second["played_ms"] == continued["played_ms"]
            await asyncio.sleep(0.5)
            hold(socket)
            await socket.until("interrupted", 3)
            socket.put(type="interrupt", utterance="a")
            last = await socket.until("interrupted", 4)
            assert "hold_ms" not in last
            assert last["played_ms"] == socket.of("interrupted")[2]["played_ms"]
            assert gateway.admission.active == 0
            socket.put(type="continue", utterance="a")
            assert (await socket.until("error"))["code"] == "utterance_ended"

    run(scene())


def test_continue_of_an_utterance_that_is_not_held_is_refused() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            socket.put(type="continue", utterance="nothing", id="c0")
            say(socket, "a", TEXT)
            socket.put(type="continue", utterance="a", id="c1")
            await socket.until("done")
            socket.put(type="continue", utterance="a", id="c2")
            await socket.until("error", 3)
            codes = [(error["id"], error["code"]) for error in socket.of("error")]
            assert codes == [("c0", "unknown_utterance"), ("c1", "not_held"), ("c2", "utterance_ended")]
            assert spoken(socket) == s16le(tone_pcm(TEXT))

    run(scene())


@pytest.mark.parametrize(("most_ms", "hold_ms"), [(5000, 5001), (0, 1), (5000, 0), (5000, -1)])
def test_hold_beyond_the_bound_is_refused_and_the_speech_goes_on(most_ms: int, hold_ms: int) -> None:
    async def scene() -> None:
        async with InProcessGateway(hold_max_ms=most_ms) as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT)
            hold(socket, hold_ms=hold_ms)
            error = await socket.until("error")
            assert (error["code"], error["param"]) == ("bad_message", "hold_ms")
            await socket.until("done")
            assert socket.of("session")[0]["limits"]["hold_max_ms"] == most_ms
            kept = [utterance.hold.kept_bytes for utterance in gateway.sessions[0]._utterances.recently_done]
            assert bool(sum(kept)) == bool(most_ms), "nothing is kept where nothing is held"

    run(scene())


def test_text_flush_and_end_are_accepted_while_the_utterance_is_held() -> None:
    async def scene() -> None:
        async with InProcessGateway(text_idle_timeout_s=3) as gateway:
            socket = gateway.connect()
            socket.put(type="start", utterance="a", format=PCM)
            socket.put(type="text", utterance="a", text=TEXT)
            await asyncio.sleep(1)
            hold(socket)
            await asyncio.sleep(5)
            assert socket.of("warning") == [], "the time without text stands still"
            socket.put(type="text", utterance="a", text=OTHER)
            socket.put(type="flush", utterance="a")
            socket.put(type="end", utterance="a")
            await asyncio.sleep(1)
            socket.put(type="continue", utterance="a")
            done = await socket.until("done")
            assert done["characters"] == len(TEXT + OTHER)
            assert spoken(socket) == s16le(tone_pcm(TEXT + OTHER))
            assert socket.of("error") == []

    run(scene())


def test_done_utterance_whose_audio_is_played_can_be_held() -> None:
    async def scene() -> None:
        ends = Ends()
        async with InProcessGateway(observer=ends) as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT)
            done = await socket.until("done")
            hold(socket)
            answer = await socket.until("interrupted")
            assert answer["played_ms"] == pytest.approx(done["audio_ms"] - 400, abs=20)
            await asyncio.sleep(3)
            socket.put(type="continue", utterance="a")
            assert await socket.until("done", 2) == done
            repeated = audio_behind(socket, "continued")
            assert [header.last for header, _ in repeated] == [False] * (len(repeated) - 1) + [True]
            assert spoken(socket) == s16le(tone_pcm(TEXT))
            assert [record.outcome for record in ends.records] == ["done"], "one record"
            hold(socket, hold_ms=500)
            await asyncio.sleep(1)
            socket.put(type="continue", utterance="a")
            assert (await socket.until("error"))["code"] == "utterance_ended"

    run(scene())


def test_done_utterance_is_held_only_within_the_limit_of_utterances() -> None:
    async def scene() -> None:
        async with InProcessGateway(utterances_per_session=1) as gateway:
            socket = gateway.connect()
            say(socket, "a", OTHER)
            await socket.until("done")
            say(socket, "b", TEXT)
            await socket.until("started", 2)
            hold(socket)
            assert "hold_ms" not in await socket.until("interrupted")
            hold(socket, "b")
            assert (await socket.until("interrupted", 2))["hold_ms"] == 10_000
            say(socket, "c", OTHER)
            assert (await socket.until("error"))["code"] == "too_many_utterances"

    run(scene())


def test_hold_without_utterance_holds_all_that_the_client_plays() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            say(socket, "done", OTHER)
            await socket.until("done")
            say(socket, "speaks", TEXT)
            socket.put(type="start", utterance="open", format=PCM)
            await asyncio.sleep(0.2)
            socket.put(type="interrupt", hold_ms=5000)
            await socket.until("interrupted", 3)
            assert {m["utterance"]: m["hold_ms"] for m in socket.of("interrupted")} == dict.fromkeys(
                ("done", "speaks", "open"), 5000
            )
            await asyncio.sleep(2)
            for name in ("done", "speaks", "open"):
                socket.put(type="continue", utterance=name)
            await socket.until("continued", 3)
            socket.put(type="text", utterance="open", text=OTHER)
            socket.put(type="end", utterance="open")
            await socket.until("done", 4)
            assert s16le(tone_pcm(TEXT)) == b"".join({h.seq: p for h, p in socket.audio(2)}.values())

    run(scene())


def test_continue_counts_among_the_interrupts_of_a_second() -> None:
    async def scene() -> None:
        async with InProcessGateway(interrupts_per_s=1) as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT)
            await asyncio.sleep(0.5)
            for _ in range(3):
                hold(socket)
                socket.put(type="continue", utterance="a")
            error = await socket.until("error")
            assert (error["code"], error["reached"]) == ("rate_limited", "interrupts")
            await asyncio.sleep(error["retry_after_ms"] / 1000)
            socket.put(type="continue", utterance="a")
            await socket.until("done")
            assert spoken(socket) == s16le(tone_pcm(TEXT))

    run(scene())
