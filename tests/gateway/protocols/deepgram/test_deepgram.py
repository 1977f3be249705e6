"""Deepgram's sockets, both versions, message by message against the tone talker in virtual time."""

from __future__ import annotations

import asyncio

from fakes.gateway.in_process import InProcessGateway
from fakes.gateway.packet_encoder import s16le
from fakes.pipeline.tone_synthesizer import tone_pcm
from fakes.virtual_time import run

from .deepgram_client import TEXT, V1, V2, VERSIONS, heard, kinds, speak


def test_v1_turns_as_livekit_and_pipecat_send_them() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(V1)
            for turn in (1, 2):
                speak(socket)
                flushed = await socket.until("Flushed", turn)
                assert flushed["sequence_id"] == turn - 1
                await asyncio.sleep(1)
                assert not bench.synthesizer.open_speeches, "between turns no slot is held"
            assert kinds(socket) == ["Metadata", "audio", "Flushed", "audio", "Flushed"]
            assert heard(socket) == 2 * s16le(tone_pcm(TEXT + " "))
            assert socket.of("Metadata")[0]["model_name"] == "ada"

    run(scene())


def test_v2_counts_breaks_of_each_turn() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(V2)
            for turn, breaks in enumerate((2, 0), 1):
                socket.put(type="Speak", text=TEXT)
                await socket.until("SpeechStarted", turn)
                bench.synthesizer.speeches[-1].pauses = breaks
                socket.put(type="Flush")
                controls = (await socket.until("SpeechMetadata", turn))["controls_applied"]
                assert controls == {"pronunciations_applied": 0, "breaks_applied": breaks, "pronunciation_warnings": 0}

    run(scene())


def test_v2_turns_with_their_counts() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(V2)
            speak(socket)
            metadata = await socket.until("SpeechMetadata")
            await socket.until("Flushed")
            assert kinds(socket) == ["Connected", "SpeechStarted", "audio", "SpeechMetadata", "Flushed"]
            assert heard(socket) == s16le(tone_pcm(TEXT + " "))
            id = socket.of("SpeechStarted")[0]["speech_id"]
            assert id == metadata["speech_id"] == socket.of("Flushed")[0]["speech_id"]
            assert metadata["audio_duration_ms"] == len(heard(socket)) // 48
            assert metadata["input_character_count"] == len(TEXT) + 1
            socket.put(type="Close")
            assert await socket.hung_up() == 1000
            total = socket.of("SessionMetadata")[0]
            assert total["total_audio_duration_ms"] == metadata["audio_duration_ms"]
            assert total["total_input_character_count"] == len(TEXT) + 1

    run(scene())


@VERSIONS
def test_early_turns_wait(url: str) -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(url)
            for i in range(3):
                speak(socket, f"Turn number {i}.")
            await socket.until("Flushed", 3)
            assert heard(socket) == b"".join(s16le(tone_pcm(f"Turn number {i}. ")) for i in range(3))
            # The engine may confirm the end of a turn when the next one has begun.
            assert bench.synthesizer.most_open <= 2

    run(scene())


@VERSIONS
def test_short_turns_do_not_accumulate_lead(url: str) -> None:
    async def scene() -> None:
        async with InProcessGateway(starts_per_s=100) as bench:
            socket = bench.dial(url)
            for _ in range(30):
                speak(socket, "Yes, it is so.")
            await socket.until("Flushed", 30)
            first_s = next(t for t, m in zip(socket.times_s, socket.sent, strict=True) if isinstance(m, bytes))
            audio_s = len(heard(socket)) / 48_000
            assert audio_s > 10
            lead_s = bench.settings.max_send_ahead_ms / 1000
            assert 0 < audio_s - (socket.times_s[-1] - first_s) < lead_s + 0.2

    run(scene())


@VERSIONS
def test_interrupt_is_read_while_much_text_waits(url: str) -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(url)
            for i in range(50):
                socket.put(type="Speak", text=f"{i} " + "x" * 398)
                socket.put(type="Flush")
            await asyncio.sleep(1)
            socket.put(type="Clear" if url == V1 else "Interrupt")
            await asyncio.sleep(0.1)
            assert kinds(socket)[-1] == ("Cleared" if url == V1 else "SpeechInterrupted")
            assert not socket.of("Error")

    run(scene())


def test_v1_flush_without_text_answers_at_once() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(V1)
            socket.put(type="Flush")
            socket.put(type="Speak", text="  ")
            socket.put(type="Flush")
            await asyncio.sleep(0.1)
            assert [m["sequence_id"] for m in socket.of("Flushed")] == [0, 1]
            assert not bench.synthesizer.speeches

    run(scene())


def test_v2_flush_without_text_answers_at_once() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(V2)
            socket.put(type="Flush")
            socket.put(type="Interrupt")
            socket.put(type="Speak", text=" ")
            socket.put(type="Flush")
            await asyncio.sleep(0.1)
            warnings = [m["code"] for m in socket.of("Warning")]
            assert warnings == ["NO_ACTIVE_SPEECH", "NO_ACTIVE_SPEECH", "NO_SYNTHESIZABLE_TEXT"]
            assert socket.of("SpeechMetadata")[0]["audio_duration_ms"] == 0
            assert not bench.synthesizer.speeches

    run(scene())


@VERSIONS
def test_flush_and_close_of_an_idle_socket_are_answered(url: str) -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(url)
            socket.put(type="Flush")
            socket.put(type="Close")
            assert await socket.hung_up() == 1000

    run(scene())


@VERSIONS
def test_close_finishes_pending_speech(url: str) -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(url)
            speak(socket)
            speak(socket, flush=False)
            socket.put(type="Close")
            assert await socket.hung_up() == 1000
            assert heard(socket) == 2 * s16le(tone_pcm(TEXT + " "))

    run(scene())


def test_v1_clear_stops_and_discards_waiting_turns() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(V1)
            socket.put(type="Clear")
            speak(socket, TEXT * 4)
            speak(socket)
            await asyncio.sleep(2)
            socket.put(type="Clear")
            await socket.until("Cleared", 2)
            sent = len(socket.sent)
            await asyncio.sleep(5)
            assert len(socket.sent) == sent
            speak(socket, "Again.")
            await socket.until("Flushed")
            assert heard(socket).endswith(s16le(tone_pcm("Again. ")))
            assert [m["sequence_id"] for m in socket.messages if "sequence_id" in m] == [0, 1, 2]

    run(scene())


def test_v2_interrupts_split_the_text() -> None:
    async def scene() -> None:
        async with InProcessGateway() as bench:
            socket = bench.dial(V2)
            speak(socket)
            first_ms = (await socket.until("SpeechMetadata"))["audio_duration_ms"]
            await asyncio.sleep(1)
            speak(socket, TEXT * 6)
            await asyncio.sleep(1.5)
            # The offset counts from the beginning of the session.
            socket.put(type="Interrupt", playback_offset={"type": "time_ms", "value": first_ms + 800})
            interrupted = await socket.until("SpeechInterrupted")
            assert interrupted["audio_played_ms"] == first_ms + 800
            assert interrupted["text_spoken"] == (TEXT * 6)[:20]
            assert interrupted["text_spoken"] + interrupted["text_remaining"] == TEXT * 6 + " "
            assert interrupted["metadata"]["input_character_count"] == len(TEXT * 6) + 1
            assert len(socket.of("SpeechMetadata")) == 1
            speak(socket, TEXT * 6)
            await asyncio.sleep(0.5)
            socket.put(type="Interrupt", playback_offset={"type": "time_ms", "value": first_ms})
            assert (await socket.until("Warning"))["code"] == "INVALID_INTERRUPT_OFFSET"
            socket.put(type="Interrupt")
            second = await socket.until("SpeechInterrupted", 2)
            assert "text_spoken" not in second
            assert second["audio_played_ms"] > first_ms + 800

    run(scene())
