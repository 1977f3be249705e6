"""Sessions without a connection: counts, tokens, bounds, and their end. The whole is in acceptance/simulation."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from fakes.gateway.lossy_network import GatewayEnd, LossyConnection, LossyNetwork
from fakes.pipeline.tone_synthesizer import ToneScript, ToneSynthesizer
from fakes.virtual_time import run, settle
from voxgate.client.errors import SessionLost
from voxgate.gateway.access.caller import Grant
from voxgate.gateway.audio_header import AudioHeader
from voxgate.gateway.errors import ResumeElsewhere
from voxgate.gateway.messages.resumption import Resume
from voxgate.gateway.observability.events import DETACHED, EXPIRED, REFUSED, RESUMED, Observer
from voxgate.gateway.transport.resumption import (
    CONFIRM_MESSAGES,
    CONTESTED_S,
    MESSAGE_OVERHEAD_BYTES,
    UNCONFIRMED_BYTES,
    UNCONFIRMED_TEXT_BYTES,
)

WITHIN_S = 10.0
TEXT = "The weather is fine today and will stay so until the end of May. "


class Counts(Observer):
    def __init__(self) -> None:
        self.events: list[str] = []
        self.outcomes: list[str] = []

    def resumption(self, event: str) -> None:
        self.events.append(event)

    def utterance_ended(self, record: Any) -> None:
        self.outcomes.append(record.outcome)


class RawPeer:
    """A client of one session that counts what it receives and sends what it likes."""

    def __init__(self, network: LossyNetwork, grant: Grant | None = None) -> None:
        self.network, self.grant = network, grant or network.grant()
        self.connection: LossyConnection
        self.received: list[str | bytes] = []
        self.token = self.session = ""

    async def open(self) -> RawPeer:
        self.connection = self.network.open(self.grant, "new", 0.01)
        message = json.loads(str(await self.connection.client.receive()))
        self.received.append("session")
        self.token, self.session = message["resume"]["token"], message["session"]
        return self

    async def send(self, **fields: Any) -> None:
        await self.connection.client.send(json.dumps(fields))

    async def say(self, name: str, text: str, **start: Any) -> None:
        await self.send(type="start", utterance=name, format={"codec": "pcm"}, **start)
        await self.send(type="text", utterance=name, text=text)
        await self.send(type="end", utterance=name)

    async def read(self, seconds: float) -> None:
        """Keeps what comes within that time, until the gateway closes."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    self.received.append(await self.connection.client.receive())
        except (TimeoutError, SessionLost):
            return

    async def resume(self, **fields: Any) -> dict[str, Any]:
        """The answer on a new connection, by default to the right token and the right count."""
        self.connection = self.network.open(self.grant, self.session, 0.01)
        await self.send(**{"type": "resume", "token": self.token, "received": len(self.received), **fields})
        answer: dict[str, Any] = json.loads(str(await self.connection.client.receive()))
        if answer["type"] == "resumed":
            self.token = answer["resume"]["token"]
        return answer

    @property
    def audio(self) -> list[int]:
        return [AudioHeader.unpack(message)[0].seq for message in self.received if isinstance(message, bytes)]

    def of(self, kind: str) -> list[dict[str, Any]]:
        messages = [json.loads(message) for message in self.received[1:] if isinstance(message, str)]
        return [message for message in messages if message["type"] == kind]


def network(observer: Observer | None = None, slots: int = 4, **options: Any) -> LossyNetwork:
    voice = ToneSynthesizer(ToneScript(), slots=slots)
    return LossyNetwork(voice, observer, **{"resume_s": WITHIN_S, **options})


def test_resumed_session_sends_again_what_was_not_received() -> None:
    async def scene() -> None:
        counts = Counts()
        async with network(counts) as lossy:
            peer = await RawPeer(lossy).open()
            await peer.say("a", TEXT)
            await peer.read(0.5)
            peer.connection.cut(0.0, 0.0)
            await asyncio.sleep(5)
            peer.received = peer.received[:-2]  # as if they had been lost
            assert (await peer.resume())["received"] == 3
            await peer.read(20)
            assert peer.audio == list(range(len(peer.audio)))
            assert len(peer.of("started")) == len(peer.of("done")) == 1
            assert (counts.events, counts.outcomes) == ([DETACHED, RESUMED], ["done"])

    run(scene())


def test_session_without_a_connection_pauses_generation() -> None:
    async def scene() -> None:
        async with network() as lossy:
            peer = await RawPeer(lossy).open()
            await peer.say("a", TEXT * 8)
            await peer.read(1)
            peer.connection.cut(0.0, 0.0)
            await asyncio.sleep(2)
            (speech,) = lossy.synthesizer.speeches  # type: ignore[attr-defined]  # a ToneSynthesizer
            made = speech.made
            await asyncio.sleep(WITHIN_S - 3)
            assert speech.made == made
            await asyncio.sleep(2)
            assert speech.closed

    run(scene())


def test_session_ends_when_it_is_not_resumed_in_time() -> None:
    async def scene() -> None:
        counts = Counts()
        async with network(counts) as lossy:
            peer = await RawPeer(lossy).open()
            await peer.say("a", TEXT)
            await peer.read(0.5)
            peer.connection.cut(0.0, 0.0)
            await asyncio.sleep(WITHIN_S - 0.1)
            assert len(lossy.sessions) == lossy.sessions.total_open == 1
            await asyncio.sleep(0.2)
            assert len(lossy.sessions) == lossy.sessions.total_open == 0
            assert (await peer.resume())["code"] == "resume_failed"
            assert (counts.events, counts.outcomes) == ([DETACHED, EXPIRED, REFUSED], ["client_gone"])

    run(scene())


def test_close_ends_the_session_at_once() -> None:
    async def scene() -> None:
        async with network() as lossy:
            peer = await RawPeer(lossy).open()
            await peer.connection.client.close()
            await asyncio.sleep(0.1)
            assert len(lossy.sessions) == 0

    run(scene())


def test_resume_replaces_a_connection_that_seems_alive() -> None:
    async def scene() -> None:
        async with network() as lossy:
            peer = await RawPeer(lossy).open()
            await peer.say("a", TEXT)
            await peer.read(0.5)
            old = peer.connection
            old.cut(None, None)
            await peer.resume()
            await peer.read(20)
            assert old.gateway.lost
            assert peer.audio == list(range(len(peer.audio)))
            assert peer.of("done")

    run(scene())


@pytest.mark.parametrize("change", [{"token": "forged"}, {"received": 10**6}, {"received": 0}])
def test_wrong_token_or_count_is_refused_and_costs_the_session_nothing(change: dict[str, Any]) -> None:
    async def scene() -> None:
        async with network() as lossy:
            peer = await RawPeer(lossy).open()
            await peer.say("a", TEXT)
            await peer.read(0.5)
            await peer.send(type="received", messages=len(peer.received))
            await peer.read(0.1)
            good = peer.connection
            assert (await peer.resume(**change))["code"] == "resume_failed"
            peer.connection = good
            await peer.read(20)
            assert peer.of("done")

    run(scene())


def test_other_key_is_refused() -> None:
    async def scene() -> None:
        async with network() as lossy:
            peer = await RawPeer(lossy, lossy.grant("ada", "hash of ada")).open()
            peer.connection.cut(0.0, 0.0)
            await settle()
            peer.grant = lossy.grant("bob", "hash of bob")
            assert (await peer.resume())["code"] == "resume_failed"
            peer.grant = lossy.grant("ada", "hash of ada")
            assert (await peer.resume())["type"] == "resumed"

    run(scene())


def test_token_is_replaced_once_the_client_has_shown_that_it_has_the_next() -> None:
    async def scene() -> None:
        async with network() as lossy:
            peer = await RawPeer(lossy).open()
            first = peer.token
            peer.connection.cut(0.0, 0.0)
            await peer.resume()
            second = peer.token
            # The answer might have been lost: the first token is good until a message comes on the new connection.
            assert (await peer.resume(token=first))["type"] == "resumed"
            assert len({first, second, peer.token}) == 3
            await peer.send(type="ping")
            await peer.read(0.1)
            assert (await peer.resume(token=first))["code"] == "resume_failed"
            assert (await peer.resume(token=second))["code"] == "resume_failed"
            assert (await peer.resume())["type"] == "resumed"

    run(scene())


def test_unconfirmed_messages_are_bounded() -> None:
    async def scene() -> None:
        async with network() as lossy:
            peer = await RawPeer(lossy).open()
            await peer.say("a", TEXT * 20, pacing="none")
            await peer.read(2)
            sent = sum(len(message) for message in peer.received)
            assert UNCONFIRMED_BYTES / 2 < sent < UNCONFIRMED_BYTES + 10_000
            await peer.send(type="received", messages=len(peer.received))
            await peer.read(2)
            assert sum(len(message) for message in peer.received) > 1.5 * sent

    run(scene())


def test_more_messages_than_were_sent_cannot_be_confirmed() -> None:
    async def scene() -> None:
        async with network() as lossy:
            peer = await RawPeer(lossy).open()
            await peer.send(type="received", messages=99)
            await peer.read(0.1)
            (error,) = peer.of("error")
            assert (error["code"], error["param"]) == ("bad_message", "messages")

    run(scene())


def test_messages_of_the_client_are_confirmed() -> None:
    async def scene() -> None:
        async with network() as lossy:
            peer = await RawPeer(lossy).open()
            for _ in range(2 * CONFIRM_MESSAGES):
                await peer.send(type="ping")
            await peer.read(1)
            assert [each["messages"] for each in peer.of("received")] == [CONFIRM_MESSAGES, 2 * CONFIRM_MESSAGES]

    run(scene())


def test_confirmations_are_not_kept_without_bound() -> None:
    async def scene() -> None:
        async with network(messages_per_s=100_000) as lossy:
            peer = await RawPeer(lossy).open()
            messages = CONFIRM_MESSAGES * UNCONFIRMED_TEXT_BYTES // MESSAGE_OVERHEAD_BYTES
            for _ in range(messages // 50):
                for _ in range(50):
                    await peer.send(type="received", messages=0)
                await asyncio.sleep(0.01)
            await peer.read(0.1)
            unconfirmed = sum(len(message) + MESSAGE_OVERHEAD_BYTES for message in peer.received[1:])
            assert 0.9 * UNCONFIRMED_TEXT_BYTES < unconfirmed < 1.1 * UNCONFIRMED_TEXT_BYTES
            await peer.send(type="received", messages=len(peer.received))
            await peer.send(type="ping")
            await peer.read(0.1)
            assert peer.of("received")[-1]["messages"] > messages // 2

    run(scene())


def test_detached_session_gives_its_slots_to_others() -> None:
    async def scene() -> None:
        async with network(slots=1) as lossy:
            peer = await RawPeer(lossy).open()
            await peer.say("a", TEXT)
            await peer.read(0.5)
            peer.connection.cut(0.0, 0.0)
            other = await RawPeer(lossy, lossy.grant("other")).open()
            await other.say("b", TEXT)
            await other.read(CONTESTED_S + 1)
            assert other.of("started")
            assert (await peer.resume())["code"] == "resume_failed"

    run(scene())


def test_client_that_resumes_and_hears_nothing_keeps_no_slot_from_others() -> None:
    """Each of its absences is short, and each connection is new to the limits of one that does not read."""

    async def scene() -> None:
        async with network(slots=1, queue_wait_ms=30_000) as lossy:
            peer = await RawPeer(lossy).open()
            await peer.say("a", 4 * TEXT)
            await peer.read(0.5)
            other = await RawPeer(lossy, lossy.grant("other")).open()
            await other.say("b", TEXT)
            for _ in range(5):
                peer.connection.cut(0.0, 0.0)
                await asyncio.sleep(CONTESTED_S - 0.5)
                if (await peer.resume())["type"] == "error":
                    break
                await asyncio.sleep(1)
            await other.read(1)
            assert other.of("started")

    run(scene())


def test_client_that_hears_its_speech_between_many_losses_keeps_its_slot() -> None:
    async def scene() -> None:
        async with network(slots=1, queue_wait_ms=60_000) as lossy:
            peer = await RawPeer(lossy).open()
            await peer.say("a", 4 * TEXT)
            other = await RawPeer(lossy, lossy.grant("other")).open()
            await other.say("b", TEXT)
            for _ in range(5):
                await peer.read(2)
                peer.connection.cut(0.0, 0.0)
                await asyncio.sleep(CONTESTED_S - 0.5)
                assert (await peer.resume())["type"] == "resumed"
            await peer.read(30)
            assert peer.of("done")
            assert peer.audio == list(range(len(peer.audio)))

    run(scene())


def test_client_that_does_not_read_loses_its_connection_and_may_resume() -> None:
    async def scene() -> None:
        counts = Counts()
        async with network(counts, slow_consumer_timeout_ms=3000) as lossy:
            peer = await RawPeer(lossy).open()
            await peer.say("a", TEXT)
            await peer.read(0.3)
            peer.connection.cut(None, None)  # the network stalls
            await asyncio.sleep(4.5)
            assert counts.events == [DETACHED]
            await peer.resume()
            await peer.read(20)
            assert peer.audio == list(range(len(peer.audio)))
            assert counts.outcomes == ["done"]

    run(scene())


def test_client_that_reads_and_stops_to_ack_is_closed() -> None:
    async def scene() -> None:
        counts = Counts()
        async with network(counts) as lossy:
            peer = await RawPeer(lossy).open()
            await peer.say("a", TEXT)
            await peer.read(0.5)
            await peer.send(type="ack", utterance="a", played_samples=2400)
            await peer.read(20)
            assert peer.connection.client.close_code == 4001
            assert (counts.events, counts.outcomes) == ([], ["slow_consumer"])

    run(scene())


def test_drain_ends_a_detached_session() -> None:
    async def scene() -> None:
        async with network() as lossy:
            peer = await RawPeer(lossy).open()
            await peer.say("a", TEXT)
            await peer.read(0.3)
            peer.connection.cut(0.0, 0.0)
            began_s = asyncio.get_running_loop().time()
            await lossy.sessions.drain(2)
            assert 2 <= asyncio.get_running_loop().time() - began_s < 3

    run(scene())


def test_resume_during_a_drain_is_allowed() -> None:
    async def scene() -> None:
        async with network() as lossy:
            peer = await RawPeer(lossy).open()
            await peer.say("a", TEXT)
            await peer.read(0.3)
            peer.connection.cut(0.0, 0.0)
            drain = asyncio.create_task(lossy.sessions.drain(30))
            await asyncio.sleep(1)
            assert (await peer.resume())["type"] == "resumed"
            await peer.read(10)
            assert peer.of("going_away")
            assert peer.of("done")
            await drain

    run(scene())


def test_session_of_another_process_is_to_be_looked_for_elsewhere() -> None:
    async def scene() -> None:
        async with network() as lossy:
            resume = Resume(type="resume", token="x", received=0)
            with pytest.raises(ResumeElsewhere):
                lossy.sessions.resume("none", resume, lossy.grant(), GatewayEnd(LossyConnection(0)))

    run(scene())


def test_gateway_without_resuming_offers_nothing() -> None:
    async def scene() -> None:
        async with network(resume_s=0) as lossy:
            connection = lossy.open(lossy.grant(), "new", 0.01)
            assert "resume" not in json.loads(str(await connection.client.receive()))
            connection.cut(0.0, 0.0)
            await settle()
            assert len(lossy.sessions) == 0

    run(scene())


def test_resume_in_the_middle_of_a_session_is_refused() -> None:
    async def scene() -> None:
        async with network() as lossy:
            peer = await RawPeer(lossy).open()
            await peer.send(type="resume", token=peer.token, received=1)
            await peer.send(type="ping")
            await peer.read(0.1)
            assert [error["code"] for error in peer.of("error")] == ["bad_message"]
            assert peer.of("pong")

    run(scene())


def test_loss_is_noticed_while_neither_reader_nor_writer_uses_the_connection() -> None:
    """The writer waits for a confirmation, and the reader, whose answers pile up, for the writer."""

    async def scene() -> None:
        counts = Counts()
        async with network(counts, messages_per_s=1000) as lossy:
            peer = await RawPeer(lossy).open()
            await peer.say("a", TEXT * 20, pacing="none")
            await peer.read(1)
            for _ in range(100):
                await peer.send(type="ping")
            await asyncio.sleep(0.1)
            peer.connection.cut(0.0, 0.0)
            await asyncio.sleep(WITHIN_S + 2)
            assert counts.events == [DETACHED, EXPIRED]
            assert len(lossy.sessions) == 0

    run(scene())
