"""Slow readers, lost engines, the end of the process, and cancellation anywhere."""

from __future__ import annotations

import asyncio

import pytest
from fakes.gateway.in_process import PCM, InProcessGateway, say
from fakes.gateway.packet_encoder import s16le
from fakes.pipeline.tone_synthesizer import ToneScript, tone_pcm
from fakes.virtual_time import run
from voxgate.gateway.session.timers import UNPACED_TIMEOUT_FACTOR

TEXT = "The quick brown fox jumps over the lazy dog. "


def now_s() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("pacing", ["playback", "none"])
def test_a_reader_that_pauses_is_warned_and_loses_nothing(pacing: str) -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(lookahead_frames=25), slow_consumer_timeout_ms=6000) as bench:
            socket = bench.connect()
            say(socket, "a", TEXT * 6, pacing=pacing)
            await asyncio.sleep(0.0 if pacing == "none" else 1.0)
            socket.stop_reading()
            await asyncio.sleep(3)
            made = bench.synthesizer.speeches[0].made
            await asyncio.sleep(1)
            assert bench.synthesizer.speeches[0].made == made, "generation pauses"
            socket.read_again()
            await socket.until("done")
            assert [w["code"] for w in socket.of("warning")] == ["slow_consumer"]
            assert b"".join(p for _, p in socket.audio()) == s16le(tone_pcm(TEXT * 6))

    run(scene())


def test_a_reader_that_stops_is_cut_after_the_stall_limit() -> None:
    async def scene() -> None:
        async with InProcessGateway(slow_consumer_timeout_ms=4000) as bench:
            socket = bench.connect()
            for name in "ab":
                say(socket, name, TEXT * 6)
            await asyncio.sleep(1.0)
            socket.stop_reading()
            begin_s = now_s()
            while socket.close_code is None:
                await asyncio.sleep(0.05)
            assert now_s() - begin_s == pytest.approx(4, abs=0.6)
            assert socket.close_code == 4001
            assert {(e["code"], e["utterance"]) for e in socket.of("error")} == {
                ("slow_consumer", "a"),
                ("slow_consumer", "b"),
            }
            await asyncio.sleep(0.01)
            assert bench.admission.active == 0

    run(scene())


def test_one_that_takes_audio_as_it_is_made_may_stop_reading_for_longer_but_not_for_ever() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(lookahead_frames=25)) as bench:
            player, gone = bench.connect(), bench.connect()
            for socket in (player, gone):
                say(socket, "a", TEXT * 20, pacing="none")
                await asyncio.sleep(0.0)
                socket.stop_reading()
            for _ in range(3):  # what its buffers hold is played before they ask for more
                await asyncio.sleep(8)
                player.read_again()
                await asyncio.sleep(0.0)
                player.stop_reading()
            player.read_again()
            await player.until("done")
            assert b"".join(p for _, p in player.audio()) == s16le(tone_pcm(TEXT * 20))
            assert await gone.hung_up() == 4001
            assert now_s() == pytest.approx(3 * UNPACED_TIMEOUT_FACTOR, abs=0.6)
            await asyncio.sleep(0.01)
            assert bench.admission.active == 0

    run(scene())


def test_a_player_that_stops_to_ack_is_a_slow_consumer_too() -> None:
    async def scene() -> None:
        async with InProcessGateway(slow_consumer_timeout_ms=4000) as bench:
            socket = bench.connect()
            say(socket, "a", TEXT * 10)
            await asyncio.sleep(0.5)
            socket.put(type="ack", utterance="a", played_samples=12_000)
            await asyncio.sleep(2 + 1.1)
            assert len(socket.of("warning")) == 1
            sent = len(socket.audio())
            await asyncio.sleep(1)
            assert len(socket.audio()) == sent
            while socket.close_code is None:
                await asyncio.sleep(0.05)
            assert socket.close_code == 4001
            assert now_s() == pytest.approx(0.5 + 2 + 4, abs=0.1)

    run(scene())


def test_a_reader_whose_kernel_takes_everything_is_found_out() -> None:
    """No write ever waits: only pongs tell that nobody reads."""

    async def scene() -> None:
        async with InProcessGateway(ToneScript(lookahead_frames=25)) as bench:
            stalled, other = bench.connect("stalled"), bench.connect("other")
            for socket in (stalled, other):
                say(socket, "a", TEXT * 10)
            await asyncio.sleep(3.7)
            stalled.stop_reading(buffered=True)
            began_s, sent = now_s(), len(stalled.audio())
            while stalled.close_code is None:
                await asyncio.sleep(0.05)
            assert 2 < now_s() - began_s <= 3.1
            assert stalled.close_code == 4001
            assert [w["code"] for w in stalled.of("warning")] == ["slow_consumer"]
            assert [e["code"] for e in stalled.of("error")] == ["slow_consumer"]
            assert len(stalled.audio()) - sent <= 2 / 0.08, "nothing more once it was warned"
            assert bench.synthesizer.speeches[0].made <= (3.7 + 2 + 2) / 0.08 + 25
            await other.until("done")
            assert other.of("warning") == []
            assert b"".join(p for _, p in other.audio()) == s16le(tone_pcm(TEXT * 10))

    run(scene())


def test_a_reader_that_comes_back_in_time_loses_nothing() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.connect()
            say(socket, "a", TEXT * 8)
            for _ in range(3):
                await asyncio.sleep(2)
                socket.stop_reading(buffered=True)
                await asyncio.sleep(1.9)
                socket.read_again()
            await socket.until("done")
            assert len(socket.of("warning")) == 1, "told once"
            assert b"".join(p for _, p in socket.audio()) == s16le(tone_pcm(TEXT * 8))

    run(scene())


def test_who_takes_audio_as_fast_as_it_is_made_may_read_as_slowly_as_he_likes() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.connect()
            say(socket, "a", TEXT * 10, pacing="none")
            socket.stop_reading(buffered=True)
            await socket.until("done")
            assert socket.of("warning") == []

    run(scene())


def test_a_client_that_only_sends_is_left_unread() -> None:
    async def scene() -> None:
        async with InProcessGateway(messages_per_s=1e6) as bench:
            socket = bench.connect()
            await socket.until("session")
            socket.stop_reading()
            for i in range(1000):
                socket.put(type="ping", id=str(i))
            await asyncio.sleep(5)
            assert bench.sessions[0].backlog < 70
            socket.read_again()
            await socket.until("pong", 1000)
            assert [m["id"] for m in socket.of("pong")] == [str(i) for i in range(1000)]

    run(scene())


def test_one_failed_utterance_leaves_the_others_alone() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(fail_frame=30)) as bench:
            socket = bench.connect()
            say(socket, "long", TEXT * 3)
            say(socket, "short", TEXT)
            error = await socket.until("error")
            assert (error["code"], error["utterance"]) == ("generation_failed", "long")
            assert (error["retryable"], error["partial_audio"]) == (True, True)
            assert (await socket.until("done"))["utterance"] == "short"

    run(scene())


def test_a_lost_engine_fails_every_utterance_and_the_sockets_stay() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=2) as bench:
            sockets = [bench.connect(f"k{i}") for i in range(3)]
            for socket in sockets:
                say(socket, "a", TEXT * 6)
                await asyncio.sleep(0.1)
            bench.synthesizer.lose()
            errors = [await socket.until("error") for socket in sockets]
            assert [e["code"] for e in errors] == ["engine_lost", "engine_lost", "engine_not_ready"]
            assert [e["partial_audio"] for e in errors] == [True, True, False]
            await bench.synthesizer.start()
            for socket in sockets:
                say(socket, "b", "Here again.")
                await socket.until("done")
                assert socket.close_code is None

    run(scene())


def test_the_cap_on_speech_ends_it_while_text_is_open() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(max_frames=5)) as bench:
            socket = bench.connect()
            socket.put(type="start", utterance="a", format=PCM)
            socket.put(type="text", utterance="a", text=TEXT)
            socket.put(type="text", utterance="a", text="More.")
            done = await socket.until("done")
            assert (done["reason"], done["frames"]) == ("length", 5)
            socket.put(type="text", utterance="a", text="Too late.")
            assert (await socket.until("error"))["code"] == "utterance_ended"

    run(scene())


def test_drain_lets_speech_finish_and_closes_the_idle() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            speaking, idle = bench.connect(), bench.connect()
            say(speaking, "a", TEXT)
            await speaking.until("started")
            for session in bench.sessions:
                session.drain(30_000, now_s() + 0.2)
            await asyncio.sleep(0.1)
            assert idle.of("going_away") == [{"type": "going_away", "deadline_ms": 30_000}]
            assert idle.close_code is None
            say(speaking, "b", "Too late.")
            assert (await speaking.until("error"))["code"] == "draining"
            await asyncio.sleep(0.2)
            assert (idle.close_code, speaking.close_code) == (1012, None)
            await speaking.until("done")
            await asyncio.sleep(0.01)
            assert speaking.close_code == 1012
            assert b"".join(p for _, p in speaking.audio()) == s16le(tone_pcm(TEXT))

    run(scene())


def test_at_the_deadline_what_is_left_gets_an_error() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.connect()
            say(socket, "a", TEXT * 9)
            await socket.until("started")
            bench.sessions[0].drain(100, now_s())
            await asyncio.sleep(0.1)
            bench.sessions[0].abort()
            await asyncio.sleep(0.01)
            assert [(e["code"], e["utterance"]) for e in socket.of("error")] == [("draining", "a")]
            assert socket.close_code == 1012

    run(scene())


@pytest.mark.parametrize("way", ["disconnect", "cancel"])
def test_an_end_at_any_moment_frees_everything(way: str) -> None:
    """Moves the end through the whole life of two utterances, one of which waits for the other's slot."""

    async def scene(end_s: float) -> None:
        async with InProcessGateway(ToneScript(frame_s=0.01, close_s=0.02), slots=1) as bench:
            socket = bench.connect()
            say(socket, "a", "Good day to you.")
            say(socket, "b", "And to you.")
            await asyncio.sleep(end_s)
            if way == "disconnect":
                socket.disconnect()
            else:
                bench.runs[0].cancel()
            await asyncio.sleep(1)
            # InProcessGateway.__aexit__ asserts that no speech, slot, place in the queue or task is left.
            assert bench.runs[0].done()

    for step in range(60):
        run(scene(step * 0.017))
