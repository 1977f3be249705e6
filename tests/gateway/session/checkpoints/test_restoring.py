"""Sessions send checkpoints, and go on from those of other gateways; what is forged or foreign restores nothing."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from fakes.gateway.in_process import PCM, InProcessGateway
from fakes.gateway.websocket import FakeSocket
from fakes.pipeline.tone_synthesizer import ToneScript
from fakes.virtual_time import run
from voxgate.codecs.encode import PacketEncoder
from voxgate.gateway.access.keys import KeyLimits
from voxgate.gateway.protocols.native import NativeProtocol

TEXT = "the quick brown fox jumps over the lazy dog and then sleeps " * 3
SCRIPT = ToneScript(frame_s=0.01)
SEED = 3


def protocol() -> NativeProtocol:
    return NativeProtocol(extended=True, resumable=True, model="tones")


def dial(gateway: InProcessGateway, limits: KeyLimits | None = None) -> FakeSocket:
    return gateway.connect(protocol=protocol(), limits=limits)


def say(socket: FakeSocket, **start: Any) -> None:
    fields = {"format": PCM, "voice": "ada", "seed": SEED, "words": True, **start}
    socket.put(type="start", utterance="u", **fields)
    socket.put(type="text", utterance="u", text=TEXT)
    socket.put(type="end", utterance="u")


def parts(socket: FakeSocket) -> list[str]:
    return [message["part"] for message in socket.of("checkpoint")]


def restore(
    socket: FakeSocket, known: list[str], name: str = "u", messages: int = 0, *, last: bool = False, **changes: Any
) -> None:
    fields = {"format": PCM, "voice": "ada", "seed": SEED, "words": True, "characters": len(TEXT), **changes}
    received = {"messages": messages, "last": last, "words": changes.pop("words_received", 0)}
    fields.pop("words_received", None)
    socket.put(type="restore", utterance=name, checkpoint=known, received=received, **fields)
    socket.put(type="text", utterance=name, text=TEXT)
    socket.put(type="end", utterance=name)


def pcm(socket: FakeSocket, number: int = 1) -> bytes:
    return b"".join(payload for _, payload in socket.audio(number))


async def spoken_for(gateway: InProcessGateway, seconds: float) -> FakeSocket:
    socket = dial(gateway)
    say(socket)
    await asyncio.sleep(seconds)
    return socket


async def undisturbed() -> FakeSocket:
    async with InProcessGateway(SCRIPT) as gateway:
        socket = dial(gateway)
        say(socket)
        await socket.until("done")
        return socket


def test_another_gateway_goes_on_behind_the_last_message() -> None:
    async def scene() -> None:
        expected = await undisturbed()
        for seconds in (0.05, 0.5, 1.3, 2.2, 3.1):
            async with InProcessGateway(SCRIPT) as gateway:
                before = await spoken_for(gateway, seconds)
                before.disconnect()
                known, heard = parts(before), before.audio()
                words = sum(len(message["words"]) for message in before.of("words"))
                after = dial(gateway)
                restore(after, known, messages=len(heard), words_received=words)
                done = await after.until("done")
                assert pcm(before) + pcm(after) == pcm(expected)
                headers = [header for header, _ in (*heard, *after.audio())]
                assert [(h.seq, h.pts, h.last) for h in headers] == [
                    (h.seq, h.pts, h.last) for h, _ in expected.audio()
                ]
                spoken = [word for each in (before, after) for m in each.of("words") for word in m["words"]]
                assert spoken == [word for message in expected.of("words") for word in message["words"]]
                figures = ("reason", "characters", "frames", "samples")
                assert [done[name] for name in figures] == [expected.of("done")[0][name] for name in figures]
                speech = gateway.synthesizer.speeches[1]
                assert speech.frames_drawn == speech.made - sum(len(run.codes) for run in speech.request.past)

    run(scene())


def test_a_client_that_has_all_audio_gets_the_rest() -> None:
    async def scene() -> None:
        expected = await undisturbed()
        async with InProcessGateway(SCRIPT) as gateway:
            socket = dial(gateway)
            audio = expected.audio()
            say(socket)
            await socket.until("done")
            after = dial(gateway)
            after.put(
                type="restore",
                utterance="u",
                checkpoint=parts(socket),
                received={"messages": len(audio), "last": audio[-1][0].last, "words": 99},
                format=PCM,
                voice="ada",
                seed=SEED,
                words=True,
                characters=len(TEXT),
            )
            after.put(type="text", utterance="u", text=TEXT)
            after.put(type="end", utterance="u")
            done = await after.until("done")
            assert done["samples"] == expected.of("done")[0]["samples"]
            assert after.audio() == []

    run(scene())


async def all_but_the_last(gateway: InProcessGateway, *, last: bool) -> tuple[FakeSocket, FakeSocket]:
    """Returns the sockets of a complete utterance and of one that restores it behind its last packet or the one before.

    The last packet is made only with the end of the text. `retract` is sent while the second one waits for a slot.
    """
    resampled = PCM | {"sample_rate": 16_000}
    before, blocking, after = dial(gateway), dial(gateway), dial(gateway)
    say(before, format=resampled)
    await before.until("done")
    say(blocking)
    await blocking.until("started")
    restore(after, parts(before), messages=len(before.audio()) - (not last), last=last, format=resampled)
    after.put(type="retract", utterance="u", id="r", characters=0)
    await after.until("queued")
    blocking.put(type="interrupt", utterance="u")
    return before, after


def test_text_can_be_taken_back_where_almost_all_audio_was_sent_elsewhere() -> None:
    async def scene() -> None:
        async with InProcessGateway(SCRIPT, slots=1, encoder=PacketEncoder) as gateway:
            before, after = await all_but_the_last(gateway, last=False)
            assert (await after.until("retracted"))["text"] == ""
            after.put(type="end", utterance="u")
            done = await after.until("done")
            assert pcm(before).endswith(pcm(after))
            assert len(after.audio()) == 1
            assert done["samples"] == before.of("done")[0]["samples"]

    run(scene())


def test_text_cannot_be_taken_back_where_the_end_was_sent_elsewhere() -> None:
    async def scene() -> None:
        async with InProcessGateway(SCRIPT, slots=1, encoder=PacketEncoder) as gateway:
            before, after = await all_but_the_last(gateway, last=True)
            done = await after.until("done")
            (error,) = after.of("error")
            assert (error["id"], error["code"]) == ("r", "utterance_ended")
            assert after.audio() == []
            assert done["samples"] == before.of("done")[0]["samples"]

    run(scene())


def test_words_that_came_ahead_of_their_audio_are_void_once_the_text_is_taken_back() -> None:
    async def scene() -> None:
        async with InProcessGateway(SCRIPT, slots=1) as gateway:
            before = await spoken_for(gateway, 0.5)
            before.disconnect()
            await asyncio.sleep(1)
            blocking, after = dial(gateway), dial(gateway)
            say(blocking)
            await blocking.until("started")
            received = {"messages": 0, "words": 6, "words_end_ms": 3000}
            options = {"format": PCM, "voice": "ada", "seed": SEED, "words": True, "characters": len(TEXT)}
            after.put(type="restore", utterance="u", checkpoint=parts(before)[:1], received=received, **options)
            after.put(type="text", utterance="u", text=TEXT)
            after.put(type="retract", utterance="u", characters=0)
            answer = await after.until("retracted")
            assert (answer["void_from"], answer["audio_ms"]) == (0, 0)
            text = "one two three four five six seven eight "
            after.put(type="text", utterance="u", text=text)
            after.put(type="end", utterance="u")
            blocking.put(type="interrupt", utterance="u")
            await after.until("done")
            words = [word for message in after.of("words") for word in message["words"]]
            assert [word["text"] for word in words] == text.split()
            assert words[0]["start_ms"] == 0

    run(scene())


def test_text_that_cannot_give_the_audio_received_fails_instead_of_holding_its_slot() -> None:
    async def scene() -> None:
        async with InProcessGateway(SCRIPT, slots=1) as gateway:
            before = await spoken_for(gateway, 0.5)
            before.disconnect()
            after, other = dial(gateway), dial(gateway)
            received = {"messages": 1}  # of no text at all
            options = {"format": PCM, "voice": "ada", "seed": SEED, "words": True, "characters": 0}
            after.put(type="restore", utterance="u", checkpoint=parts(before)[:1], received=received, **options)
            after.put(type="retract", utterance="u", characters=0)
            after.put(type="text", utterance="u", text=TEXT)
            after.put(type="end", utterance="u")
            await after.until("started")
            say(other)
            assert (await after.until("error"))["code"] == "checkpoint_refused"
            await other.until("done")

    run(scene())


def test_the_head_comes_directly_behind_started_and_parts_cost_little() -> None:
    async def scene() -> None:
        expected = await undisturbed()
        kinds = ["audio" if isinstance(message, bytes) else json.loads(message)["type"] for message in expected.sent]
        assert kinds[kinds.index("started") + 1] == "checkpoint"
        size = sum(len(message) for message in expected.sent if '"checkpoint"' in str(message))
        seconds = expected.of("done")[0]["audio_ms"] / 1000
        assert size < 400 + 500 * seconds

    run(scene())


def test_other_clients_get_no_checkpoints_and_can_restore_nothing() -> None:
    async def scene() -> None:
        async with InProcessGateway(SCRIPT) as gateway:
            socket = gateway.connect()
            say(socket)
            await socket.until("done")
            assert not socket.of("checkpoint")
            assert "model" not in socket.of("session")[0]
            restore(socket, ["x"])
            assert (await socket.until("error"))["code"] == "unsupported_option"

    run(scene())


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_a_forged_part_ends_the_utterance_with_a_typed_error(keep: int) -> None:
    async def scene() -> None:
        async with InProcessGateway(SCRIPT) as gateway:
            known = parts(await spoken_for(gateway, 2.5))
            assert len(known) > 2
            forged = known[keep][:-6] + ("A" if known[keep][-6] != "A" else "B") + known[keep][-5:]
            socket = dial(gateway)
            restore(socket, [*known[:keep], forged, *known[keep + 1 :]])
            error = await socket.until("error")
            assert (error["code"], error["utterance"], error["retryable"]) == ("checkpoint_refused", "u", False)
            restore(socket, known)
            await socket.until("started")

    run(scene())


def test_parts_may_follow_in_further_messages_and_a_bad_one_ends_the_utterance() -> None:
    async def scene() -> None:
        expected = await undisturbed()
        async with InProcessGateway(SCRIPT) as gateway:
            known = parts(await spoken_for(gateway, 2.5))
            socket = dial(gateway)
            begin = {"type": "restore", "utterance": "u", "checkpoint": known[:1], "received": {"messages": 0}}
            options = {"format": PCM, "voice": "ada", "seed": SEED, "words": True}
            socket.put(**begin, **options)
            socket.put(type="checkpoint", utterance="u", parts=known[1:])
            socket.put(type="text", utterance="u", text=TEXT)
            socket.put(type="end", utterance="u")
            await socket.until("done")
            assert pcm(socket) == pcm(expected)
            assert gateway.synthesizer.speeches[1].request.past
            socket.put(**begin, **options)
            socket.put(type="checkpoint", utterance="u", parts=known[2:])
            assert (await socket.until("error"))["code"] == "checkpoint_refused"
            assert not gateway.sessions[1].active

    run(scene())


def test_a_checkpoint_used_twice_at_once_counts_as_two_utterances_of_its_caller() -> None:
    async def scene() -> None:
        async with InProcessGateway(SCRIPT) as gateway:
            known = parts(await spoken_for(gateway, 1.5))
            socket = dial(gateway, KeyLimits(utterances=1))
            restore(socket, known, "a")
            restore(socket, known, "b")
            error = await socket.until("error")
            assert (error["code"], error["utterance"]) == ("key_limit", "b")
            await socket.until("done")
            assert socket.of("done")[0]["utterance"] == "a"

    run(scene())


def test_text_that_is_sent_again_is_charged_once_and_before_anything_begins() -> None:
    async def scene() -> None:
        async with InProcessGateway(SCRIPT) as gateway:
            known = parts(await spoken_for(gateway, 1.5))
            socket = dial(gateway, KeyLimits(characters_per_minute=len(TEXT) + 5))
            restore(socket, known, "a")
            await socket.until("started")
            restore(socket, known, "b")
            error = await socket.until("error")
            assert (error["code"], error["utterance"]) == ("rate_limited", "b")
            assert error["retry_after_ms"] > 0

    run(scene())


def test_text_that_is_only_announced_is_charged_up_to_the_maximum_of_an_utterance() -> None:
    async def scene() -> None:
        async with InProcessGateway(SCRIPT, max_characters=len(TEXT)) as gateway:
            known = parts(await spoken_for(gateway, 1.5))
            socket = dial(gateway, KeyLimits(characters_per_minute=len(TEXT) + 5))
            restore(socket, known, characters=2**53 - 1)
            await socket.until("started")
            socket.put(type="limits")
            assert (await socket.until("limits"))["quota"]["characters_left"] == 5

    run(scene())


def test_a_drain_sends_the_last_part_and_says_that_another_gateway_can_go_on() -> None:
    async def scene() -> None:
        async with InProcessGateway(SCRIPT) as gateway:
            socket, other = await spoken_for(gateway, 1.5), gateway.connect()
            say(other)
            await other.until("started")
            known = len(parts(socket))
            now_s = asyncio.get_running_loop().time()
            for session in gateway.sessions:
                session.drain(1000, now_s)
            assert (await socket.until("going_away"))["restore_elsewhere"] is True
            assert "restore_elsewhere" not in await other.until("going_away")
            assert len(parts(socket)) == known + 1
            assert [message["type"] for message in socket.messages][-1] == "going_away"

    run(scene())
