"""An utterance that is interrupted for a while goes on from what was heard, as if nothing had happened."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from fakes.gateway.in_process import PCM, InProcessGateway, say
from fakes.gateway.packet_encoder import s16le
from fakes.gateway.websocket import FakeSocket
from fakes.pipeline.tone_synthesizer import ToneScript, tone_pcm
from fakes.virtual_time import run
from voxgate.gateway.audio_header import AudioHeader
from voxgate.gateway.observability.events import Observer, UtteranceRecord
from voxgate.gateway.session.slots.starvation import STARVED_S

TEXT = "The quick brown fox jumps over the lazy dog. " * 3
OTHER = "And here it is."
RATE_HZ = 24_000
PACKET_SAMPLES = 1920


def hold(socket: FakeSocket, name: str = "a", hold_ms: int = 10_000, **fields: Any) -> None:
    """Sends an interrupt that keeps the utterance."""
    socket.put(type="interrupt", utterance=name, hold_ms=hold_ms, **fields)


def audio_behind(socket: FakeSocket, kind: str, count: int = 1) -> list[tuple[AudioHeader, bytes]]:
    """Returns the audio messages behind the `count`th control message of that type."""
    message = socket.of(kind)[count - 1]
    at = next(i for i, raw in enumerate(socket.sent) if isinstance(raw, str) and socket_json(raw) == message)
    return [AudioHeader.unpack(raw) for raw in socket.sent[at:] if isinstance(raw, bytes)]


def socket_json(raw: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(raw)
    return found


def received(socket: FakeSocket) -> list[tuple[AudioHeader, bytes]]:
    """Returns the audio in the order of its numbers; what was sent twice has to be the same both times."""
    packets: dict[int, tuple[AudioHeader, bytes]] = {}
    for header, payload in socket.audio():
        assert packets.setdefault(header.seq, (header, payload)) == (header, payload), "sent again, and changed"
    assert sorted(packets) == list(range(len(packets))), "a message is missing"
    return [packets[seq] for seq in sorted(packets)]


def spoken(socket: FakeSocket) -> bytes:
    return b"".join(payload for _, payload in received(socket))


class Ends(Observer):
    """Keeps the records of utterances."""

    def __init__(self) -> None:
        self.records: list[UtteranceRecord] = []

    def utterance_ended(self, record: UtteranceRecord) -> None:
        self.records.append(record)


def now_s() -> float:
    return asyncio.get_running_loop().time()


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


def test_time_without_text_goes_on_where_the_hold_has_stopped_it() -> None:
    async def scene() -> None:
        async with InProcessGateway(text_idle_timeout_s=3) as gateway:
            socket = gateway.connect()
            socket.put(type="start", utterance="a", format=PCM)
            socket.put(type="text", utterance="a", text="ab")
            await asyncio.sleep(2)
            hold(socket)
            await asyncio.sleep(5)
            socket.put(type="continue", utterance="a")
            await socket.until("continued")
            begun_s = now_s()
            await socket.until("warning")
            assert now_s() - begun_s == pytest.approx(1, abs=0.05)

    run(scene())


def test_generation_pauses_when_the_lookahead_is_full() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(lookahead_frames=25)) as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT * 3)
            await asyncio.sleep(1)
            hold(socket)
            await socket.until("interrupted")
            await asyncio.sleep(9)
            assert gateway.synthesizer.speeches[0].made <= 1 / 0.08 + 26

    run(scene())


@pytest.mark.parametrize("acks", [False, True])
def test_hold_is_neither_an_underrun_nor_slow_reading(acks: bool) -> None:
    async def scene() -> None:
        ends = Ends()
        async with InProcessGateway(observer=ends, slow_consumer_timeout_ms=1000) as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT)
            await asyncio.sleep(1)
            if acks:
                socket.put(type="ack", utterance="a", played_samples=RATE_HZ)
            hold(socket)
            await asyncio.sleep(8)
            socket.put(type="ack", utterance="a", played_samples=2 * RATE_HZ)
            socket.put(type="continue", utterance="a")
            begun_s = now_s()
            while acks and not socket.of("done"):
                await asyncio.sleep(0.25)
                socket.put(type="ack", utterance="a", played_samples=round((1 + now_s() - begun_s) * RATE_HZ))
            done = await socket.until("done")
            assert socket.of("warning") == []
            assert ends.records[0].underruns == 0
            assert now_s() - begun_s == pytest.approx(done["audio_ms"] / 1000 - 1 - 0.4, abs=0.3), "at playback rate"

    run(scene())


def test_client_gains_no_lead_by_its_holds() -> None:
    """A hold is no time of playback, so acks of audio that was not played do not bring more."""

    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT * 4)
            await asyncio.sleep(1)
            hold(socket)
            await asyncio.sleep(9)
            socket.put(type="continue", utterance="a")
            await socket.until("continued")
            for _ in range(20):
                await asyncio.sleep(0.05)
                socket.put(type="ack", utterance="a", played_samples=10**9)
            header = received(socket)[-1][0]
            assert (header.pts + header.samples) / RATE_HZ <= 2 + 2 * 0.4 + 0.1

    run(scene())


def test_words_and_visemes_are_told_once_and_ahead_of_their_audio() -> None:
    async def scene(disturbed: bool) -> tuple[list[Any], list[Any]]:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT, words=True, visemes=True)
            for _ in range(3 * disturbed):
                await asyncio.sleep(0.7)
                hold(socket)
                await asyncio.sleep(0.9)
                socket.put(type="continue", utterance="a")
            await socket.until("done")
            words = [word for message in socket.of("words") for word in message["words"]]
            return words, [shape for message in socket.of("visemes") for shape in message["visemes"]]

    undisturbed = run(scene(False))
    assert all(undisturbed)
    assert run(scene(True)) == undisturbed


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


def test_position_long_ago_goes_on_from_the_oldest_message_that_is_kept() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT)
            await asyncio.sleep(3)
            hold(socket, played_ms=100)
            assert (await socket.until("interrupted"))["played_ms"] == 100
            socket.put(type="continue", utterance="a")
            continued = await socket.until("continued")
            assert continued["skip_samples"] == 0
            assert 3000 - 700 <= continued["played_ms"] == continued["seq"] * 80 <= 3000
            await socket.until("done")
            assert spoken(socket) == s16le(tone_pcm(TEXT))

    run(scene())


@pytest.mark.parametrize("format_", [PCM, {"codec": "pcm", "packet_ms": 20}])
def test_unpaced_utterance_sends_again_what_was_not_played(format_: dict[str, Any]) -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(frame_s=0.01)) as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT, pacing="none", format=format_)
            await asyncio.sleep(0.3)
            sent_ms = sum(header.samples for header, _ in socket.audio()) * 1000 // RATE_HZ
            hold(socket, played_ms=sent_ms - 1000)
            await socket.until("interrupted")
            socket.put(type="continue", utterance="a")
            assert (await socket.until("continued"))["played_ms"] == sent_ms - 1000
            await socket.until("done")
            assert spoken(socket) == s16le(tone_pcm(TEXT))

    run(scene())


def test_audio_that_waits_for_a_blocked_socket_is_not_lost() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT)
            await asyncio.sleep(1)
            socket.stop_reading()
            await asyncio.sleep(0.5)
            hold(socket)
            await asyncio.sleep(0.1)
            socket.read_again()
            await socket.until("interrupted")
            before = received(socket)[-1][0].seq
            socket.put(type="continue", utterance="a")
            assert (await socket.until("continued"))["seq"] <= before + 1
            await socket.until("done")
            assert spoken(socket) == s16le(tone_pcm(TEXT))

    run(scene())


# Its slot


@pytest.mark.parametrize("chunk_frames", [1, 3])
def test_held_utterance_gives_its_slot_to_one_that_waits_and_asks_for_it_again(chunk_frames: int) -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(chunk_frames=chunk_frames, lookahead_frames=25), slots=1) as gateway:
            holding, other = gateway.connect("k1"), gateway.connect("k2")
            say(holding, "a", TEXT)
            await asyncio.sleep(1)
            hold(holding)
            await asyncio.sleep(3)
            assert gateway.admission.active == 1, "no other waits"
            say(other, "b", OTHER)
            begun_s = now_s()
            await other.until("started")
            assert now_s() - begun_s < STARVED_S
            await other.until("done")
            assert gateway.admission.active == 0
            holding.put(type="continue", utterance="a")
            await holding.until("done")
            assert gateway.synthesizer.speeches[0].suspensions == 1
            assert spoken(holding) == s16le(tone_pcm(TEXT))
            assert [m["type"] for m in holding.messages] == ["session", "started", "interrupted", "continued", "done"]

    run(scene())


def test_kept_audio_is_sent_while_the_utterance_waits_for_its_slot() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, queue_wait_ms=60_000) as gateway:
            holding, other = gateway.connect("k1"), gateway.connect("k2")
            say(holding, "a", TEXT * 3)
            await asyncio.sleep(1)
            hold(holding)
            say(other, "b", TEXT)
            await other.until("started")
            holding.put(type="continue", utterance="a")
            await holding.until("continued")
            await asyncio.sleep(1.4)
            assert not other.of("done")
            assert len(audio_behind(holding, "continued")) >= 1.3 / 0.08
            await holding.until("done")
            assert spoken(holding) == s16le(tone_pcm(TEXT * 3))

    run(scene())


def test_continue_without_a_free_slot_fails_after_the_queue_wait() -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, queue_wait_ms=3000) as gateway:
            holding, other = gateway.connect("k1"), gateway.connect("k2")
            say(holding, "a", TEXT * 3)
            await asyncio.sleep(1)
            hold(holding)
            say(other, "b", TEXT * 3)
            await other.until("started")
            holding.put(type="continue", utterance="a")
            error = await holding.until("error")
            assert (error["code"], error["utterance"]) == ("at_capacity", "a")
            await other.until("done")

    run(scene())


def test_utterance_that_gave_its_slot_up_is_let_go_or_held_again() -> None:
    async def scene() -> None:
        async with InProcessGateway(ToneScript(close_s=0.5), slots=1) as gateway:
            holding, other = gateway.connect("k1"), gateway.connect("k2")
            for name, held_s in (("a", 1.2), ("b", 1.7), ("c", 4.0)):
                say(holding, name, TEXT)
                await asyncio.sleep(1)
                hold(holding, name, hold_ms=5000)
                say(other, name, OTHER)
                await asyncio.sleep(held_s)
                holding.put(type="continue", utterance=name)
                hold(holding, name, hold_ms=300)
                await other.until("done", "abc".index(name) + 1)
                await asyncio.sleep(1)
                assert gateway.admission.active == 0

    run(scene())


# What else may happen meanwhile


@pytest.mark.parametrize("returns_s", [0.5, 4.0])
@pytest.mark.parametrize("contested", [False, True])
def test_loss_of_the_engine_while_it_is_held(returns_s: float, contested: bool) -> None:
    async def scene() -> None:
        async with InProcessGateway(slots=1, queue_wait_ms=30_000) as gateway:
            holding, other = gateway.connect("k1"), gateway.connect("k2")
            say(holding, "a", TEXT)
            await asyncio.sleep(1)
            hold(holding)
            if contested:
                say(other, "b", OTHER)
                await other.until("done")
            await asyncio.sleep(1)
            gateway.synthesizer.lose()
            await asyncio.sleep(2)
            asyncio.get_running_loop().call_later(
                returns_s, lambda: tasks.append(asyncio.create_task(gateway.restart_engine()))
            )
            tasks: list[asyncio.Task[None]] = []
            holding.put(type="continue", utterance="a")
            await holding.until("done")
            assert spoken(holding) == s16le(tone_pcm(TEXT))
            await asyncio.gather(*tasks)

    run(scene())


def test_held_utterances_end_with_the_longest_life_of_an_utterance() -> None:
    async def scene() -> None:
        async with InProcessGateway(utterance_timeout_s=20, hold_max_ms=2000) as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT)
            await asyncio.sleep(1)
            while not socket.of("error"):
                hold(socket, hold_ms=2000)
                await asyncio.sleep(1.5)
                assert now_s() < 30
            assert socket.of("error")[0]["code"] == "utterance_timeout"

    run(scene())


def test_drain_waits_for_a_held_utterance_no_longer_than_it_is_held() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            say(socket, "a", TEXT)
            await asyncio.sleep(1)
            hold(socket, hold_ms=3000)
            await socket.until("interrupted")
            gateway.sessions[0].drain(30_000, now_s())
            begun_s = now_s()
            assert await socket.hung_up() == 1012
            assert now_s() - begun_s == pytest.approx(3, abs=0.1)

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


def test_held_utterance_is_not_told_to_starve() -> None:
    async def scene() -> None:
        async with InProcessGateway() as gateway:
            socket = gateway.connect()
            socket.put(type="start", utterance="a", format=PCM, starving_ms=300)
            socket.put(type="text", utterance="a", text=OTHER)
            await asyncio.sleep(0.2)
            hold(socket)
            await asyncio.sleep(5)
            assert socket.of("starving") == []
            socket.put(type="continue", utterance="a")
            assert (await socket.until("starving"))["audio_ms"] == pytest.approx(300, abs=80)

    run(scene())
