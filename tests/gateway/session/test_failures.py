"""Slow consumers, engine failures, shutdown, and disconnects at any moment."""

from __future__ import annotations

import asyncio

import pytest
from fakes.gateway.in_process import PCM, InProcessGateway, say
from fakes.gateway.packet_encoder import s16le
from fakes.pipeline.tone_synthesizer import ToneScript, tone_pcm
from fakes.virtual_time import run
from voxgate.gateway.session.slots.utterance_slots import MAX_CONTINUED
from voxgate.gateway.session.timers import UNPACED_TIMEOUT_FACTOR

TEXT = "The quick brown fox jumps over the lazy dog. "


def now_s() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("pacing", ["playback", "none"])
def test_client_that_pauses_reading_is_warned_and_loses_nothing(pacing: str) -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(lookahead_frames=25), slow_consumer_timeout_ms=6000) as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT * 6, pacing=pacing)
            await asyncio.sleep(0.0 if pacing == "none" else 1.0)
            socket.stop_reading()
            await asyncio.sleep(3)
            made = gateway.synthesizer.speeches[0].made
            await asyncio.sleep(1)
            assert gateway.synthesizer.speeches[0].made == made, "generation pauses"
            socket.read_again()
            await socket.until("done")
            assert [w["code"] for w in socket.of("warning")] == ["slow_consumer"]
            assert b"".join(p for _, p in socket.audio()) == s16le(tone_pcm(TEXT * 6))

    run(scene())


def test_client_that_stops_reading_is_disconnected_after_the_timeout() -> None:
    async def scene() -> None:
        async with InProcessGateway(slow_consumer_timeout_ms=4000) as gateway:
            socket = gateway.connect()
            for name in "ab":
                say(socket, name, TEXT * 6)
            await asyncio.sleep(1.0)
            socket.stop_reading()
            begin_s = now_s()
            assert await socket.hung_up() == 4001
            assert now_s() - begin_s == pytest.approx(4, abs=0.6)
            assert {(e["code"], e["utterance"]) for e in socket.of("error")} == {
                ("slow_consumer", "a"),
                ("slow_consumer", "b"),
            }
            await asyncio.sleep(0.01)
            assert gateway.admission.active == 0

    run(scene())


def test_unpaced_client_may_stop_reading_longer_but_not_forever() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(lookahead_frames=25)) as gateway:
            playing, gone = gateway.connect(), gateway.connect()
            for socket in (playing, gone):
                say(socket, "a", TEXT * 20, pacing="none")
                await asyncio.sleep(0.0)
                socket.stop_reading()
            for _ in range(3):  # a player reads on only after playing what its buffer holds
                await asyncio.sleep(8)
                playing.read_again()
                await asyncio.sleep(0.0)
                playing.stop_reading()
            playing.read_again()
            await playing.until("done")
            assert b"".join(p for _, p in playing.audio()) == s16le(tone_pcm(TEXT * 20))
            assert await gone.hung_up() == 4001
            assert now_s() == pytest.approx(3 * UNPACED_TIMEOUT_FACTOR, abs=0.6)
            await asyncio.sleep(0.01)
            assert gateway.admission.active == 0

    run(scene())


def test_client_that_stops_to_ack_is_a_slow_consumer() -> None:
    async def scene() -> None:
        async with InProcessGateway(slow_consumer_timeout_ms=4000) as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT * 10)
            await asyncio.sleep(0.5)
            socket.put(type="ack", utterance="a", played_samples=12_000)
            await asyncio.sleep(2 + 1.1)
            assert len(socket.of("warning")) == 1
            sent = len(socket.audio())
            await asyncio.sleep(1)
            assert len(socket.audio()) == sent
            assert await socket.hung_up() == 4001
            assert now_s() == pytest.approx(0.5 + 2 + 4, abs=0.1)

    run(scene())


def test_unanswered_probes_detect_a_client_whose_kernel_buffers_everything() -> None:
    """No write is ever blocked, so only the probes show that the client does not read."""

    async def scene() -> None:
        async with InProcessGateway(ToneScript(lookahead_frames=25)) as gateway:
            stalled, other = gateway.connect("stalled"), gateway.connect("other")
            for socket in (stalled, other):
                say(socket, "a", TEXT * 10)
            await asyncio.sleep(3.7)
            stalled.stop_reading(buffered=True)
            began_s, sent = now_s(), len(stalled.audio())
            assert await stalled.hung_up() == 4001
            assert 2 < now_s() - began_s <= 3.1
            assert [w["code"] for w in stalled.of("warning")] == ["slow_consumer"]
            assert [e["code"] for e in stalled.of("error")] == ["slow_consumer"]
            assert len(stalled.audio()) - sent <= 2 / 0.08, "no audio is sent after the warning"
            assert gateway.synthesizer.speeches[0].made <= (3.7 + 2 + 2) / 0.08 + 25
            await other.until("done")
            assert other.of("warning") == []
            assert b"".join(p for _, p in other.audio()) == s16le(tone_pcm(TEXT * 10))

    run(scene())


def test_client_that_resumes_reading_in_time_loses_nothing() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT * 8)
            for _ in range(3):
                await asyncio.sleep(2)
                socket.stop_reading(buffered=True)
                await asyncio.sleep(1.9)
                socket.read_again()
            await socket.until("done")
            assert len(socket.of("warning")) == 1, "warned once"
            assert b"".join(p for _, p in socket.audio()) == s16le(tone_pcm(TEXT * 8))

    run(scene())


def test_probes_are_not_used_on_unpaced_audio() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT * 10, pacing="none")
            socket.stop_reading(buffered=True)
            await socket.until("done")
            assert socket.of("warning") == []

    run(scene())


def test_messages_of_a_client_that_does_not_read_are_left_unread() -> None:
    async def scene() -> None:
        async with InProcessGateway(messages_per_s=1e6) as gateway:
            socket = gateway.connect()
            await socket.until("session")
            socket.stop_reading()
            for i in range(1000):
                socket.put(type="ping", id=str(i))
            await asyncio.sleep(2)
            assert gateway.sessions[0].backlog < 70
            socket.read_again()
            await socket.until("pong", 1000)
            assert [m["id"] for m in socket.of("pong")] == [str(i) for i in range(1000)]

    run(scene())


def test_failure_of_one_utterance_does_not_affect_others() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(fail_frame=30)) as gateway:
            socket = gateway.connect()
            say(socket, "long", TEXT * 3)
            say(socket, "short", TEXT)
            error = await socket.until("error")
            assert (error["code"], error["utterance"]) == ("generation_failed", "long")
            assert (error["retryable"], error["partial_audio"]) == (True, True)
            assert (await socket.until("done"))["utterance"] == "short"

    run(scene())


def test_loss_without_a_timeout_fails_utterances_at_once_and_keeps_sockets_open() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=2, engine_loss_timeout_s=0, queue_wait_ms=60_000) as gateway:
            sockets = [gateway.connect(f"k{i}") for i in range(3)]
            for socket in sockets:
                say(socket, "a", TEXT * 6)
                await asyncio.sleep(0.1)
            gateway.synthesizer.lose()
            errors = [await socket.until("error") for socket in sockets[:2]]
            assert [e["code"] for e in errors] == ["engine_lost", "engine_lost"]
            assert [e["partial_audio"] for e in errors] == [True, True]
            await gateway.restart_engine()
            await sockets[2].until("done")
            for socket in sockets:
                say(socket, "b", "Here again.")
                await socket.until("done")
                assert socket.close_code is None

    run(scene())


def test_utterance_that_ends_every_engine_does_not_go_on_for_ever() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=2) as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT * 6)
            for _ in range(MAX_CONTINUED):
                await asyncio.sleep(0.1)
                gateway.synthesizer.lose()
                await asyncio.sleep(0.1)
                await gateway.restart_engine()
            await asyncio.sleep(0.1)
            assert socket.of("error") == []
            gateway.synthesizer.lose()
            error = await socket.until("error")
            assert (error["code"], error["partial_audio"]) == ("engine_lost", True)

    run(scene())


def test_frame_limit_ends_speech_while_text_is_open() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(max_frames=5)) as gateway:
            socket = gateway.connect()
            socket.put(type="start", utterance="a", format=PCM)
            socket.put(type="text", utterance="a", text=TEXT)
            socket.put(type="text", utterance="a", text="More.")
            done = await socket.until("done")
            assert (done["reason"], done["frames"]) == ("length", 5)
            socket.put(type="text", utterance="a", text="Too late.")
            assert (await socket.until("error"))["code"] == "utterance_ended"

    run(scene())


def test_drain_finishes_active_utterances_and_closes_idle_sockets() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            speaking, idle = gateway.connect(), gateway.connect()
            say(speaking, "a", TEXT)
            await speaking.until("started")
            for session in gateway.sessions:
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


def test_client_without_utterance_that_does_not_read_is_disconnected_after_the_timeout() -> None:
    async def scene() -> None:
        async with InProcessGateway(slow_consumer_timeout_ms=4000) as gateway:
            socket = gateway.connect()
            await socket.until("session")
            socket.stop_reading()
            socket.put(type="ping", id="1")
            begin_s = now_s()
            assert await socket.hung_up() == 4001
            assert now_s() - begin_s == pytest.approx(4, abs=0.6)

    run(scene())


def test_drain_does_not_wait_for_an_idle_client_that_does_not_read() -> None:
    async def scene() -> None:
        async with InProcessGateway(slow_consumer_timeout_ms=60_000) as gateway:
            socket = gateway.connect()
            await socket.until("session")
            socket.stop_reading()
            socket.put(type="ping", id="1")
            await asyncio.sleep(1)
            gateway.sessions[0].drain(30_000, now_s() + 0.4)
            begin_s = now_s()
            assert await socket.hung_up() == 1012
            assert now_s() - begin_s <= 1

    run(scene())


def test_drain_deadline_fails_remaining_utterances() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT * 9)
            await socket.until("started")
            gateway.sessions[0].drain(100, now_s())
            await asyncio.sleep(0.1)
            gateway.sessions[0].abort()
            await asyncio.sleep(0.01)
            assert [(e["code"], e["utterance"]) for e in socket.of("error")] == [("draining", "a")]
            assert socket.close_code == 1012

    run(scene())


@pytest.mark.parametrize("way", ["disconnect", "cancel"])
def test_end_at_any_moment_releases_everything(way: str) -> None:
    """Ends the connection at 60 moments in the life of two utterances, one of which waits for the slot of the other."""

    async def scene(end_s: float) -> None:
        async with InProcessGateway(ToneScript(frame_s=0.01, close_s=0.02), slots=1) as gateway:
            socket = gateway.connect()
            say(socket, "a", "Good day to you.")
            say(socket, "b", "And to you.")
            await asyncio.sleep(end_s)
            if way == "disconnect":
                socket.disconnect()
            else:
                gateway.runs[0].cancel()
            await asyncio.sleep(1)
            # InProcessGateway.__aexit__ asserts that no speech, slot, queued ticket or task is left.
            assert gateway.runs[0].done()

    for step in range(60):
        run(scene(step * 0.017))
