"""Fragments of text become frames of audio: each once, and as early as the text allows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from fakes.pipeline.echo_engine import END_OF_TEXT, EchoEngine
from fakes.pipeline.speech_bench import PROMPT, STORY, SpeechBench, audio_frames
from fakes.virtual_time import run, settle, turns
from hypothesis import given, settings
from hypothesis import strategies as st
from voxgate.pipeline.checkpoint.voice_config import TextRules
from voxgate.pipeline.errors import EmptyText, TextTooLong
from voxgate.pipeline.interface import FinishReason, SpeechChunk, TextLayout
from voxgate.pipeline.text.text_turns import CHARACTERS_PER_TURN, TextTurns
from voxgate.pipeline.text.tokenizer import TextTokenizer
from voxgate.pipeline.text.utterance_text import SpeechToken
from voxgate.pipeline.utterance.plan import FIRST_CHARACTERS


def test_frames_are_delivered_once_without_gaps(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            chunks = await b.say(STORY)
            assert audio_frames(chunks) == list(range(len(b.codec.frames)))
            first = 0
            for chunk in chunks:
                assert chunk.first_frame == first
                first += chunk.frames
            assert b.spoken() == b.tokenizer.encode_plain(STORY)

    run(scene())


def test_speech_begins_while_text_arrives(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.speech.push_text("one two ")
            chunk = await anext(b.speech)
            assert chunk.first_frame == 0
            assert b.speech.finish_reason is None
            b.speech.push_text("three.")
            b.speech.end()
            await b.listen()
            assert b.spoken() == b.tokenizer.encode_plain("one two three.")

    run(scene())


def test_speech_waits_when_its_text_is_used_up(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench() as b:
            b.speech.push_text("one two ")
            await settle()
            assert len(b.codec.frames) == b.engine.opened[0].tokens
            assert not b.speech.waiting_for_text, "nothing was given out yet"
            while b.speech._frames.delivered < len(b.codec.frames):
                await anext(b.speech)
            assert b.speech.waiting_for_text
            assert END_OF_TEXT not in [frame[0] for frame in b.codec.frames]

    run(scene())


@settings(max_examples=60, deadline=None)
@given(data=st.data(), room=st.integers(4, 40), limit=st.integers(0, 12), ahead=st.integers(1, 40))
def test_any_fragmentation_gives_the_same_speech(
    text_tokenizer: TextTokenizer, data: st.DataObject, room: int, limit: int, ahead: int
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(STORY)), max_size=8)))
    pauses = data.draw(st.lists(st.integers(0, 9), min_size=len(cuts) + 1, max_size=len(cuts) + 1))

    async def scene() -> None:
        bench = SpeechBench(
            text_tokenizer, rules=TextRules(segment_tokens=limit), engine=EchoEngine(text=room), lookahead_frames=ahead
        )
        async with bench as b:

            async def listen() -> list[SpeechChunk]:
                chunks = []
                async for chunk in b.speech:
                    chunks.append(chunk)
                    b.speech.advance(chunk.first_frame + chunk.frames)
                return chunks

            listening = asyncio.create_task(listen())
            for begin, end, pause in zip([0, *cuts], [*cuts, len(STORY)], pauses, strict=True):
                b.speech.push_text(STORY[begin:end])
                await turns(pause)
            b.speech.end()
            chunks = await listening
            assert b.spoken() == b.tokenizer.encode_plain(STORY)
            assert audio_frames(chunks) == list(range(len(b.codec.frames)))
            assert " ".join(word.text for chunk in chunks for word in chunk.words) == STORY
            assert b.speech.finish_reason is FinishReason.END
            assert len(b.engine.free_slots) == 2

    run(scene())


def test_refused_text_is_not_taken(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(max_characters=9) as b:
            b.speech.push_text("one two")
            with pytest.raises(TextTooLong):
                b.speech.push_text(" three")
            assert b.speech.characters == 7
            b.speech.end()
            await b.listen()
            assert b.spoken() == b.tokenizer.encode_plain("one two")

    run(scene())


def test_non_streaming_layout_waits_for_the_end(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(prompt=replace(PROMPT, layout=TextLayout.NON_STREAMING)) as b:
            b.speech.push_text("one two ")
            await settle()
            assert not b.codec.frames
            assert b.speech.waiting_for_text
            b.speech.push_text("three.")
            b.speech.end()
            await b.listen()
            assert b.segments() == ["one two three."]

    run(scene())


def test_first_token_is_sent_before_the_rest_is_tokenized(
    bench: Callable[..., SpeechBench], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        async with bench() as b:
            read: list[tuple[int, int]] = []
            push = b.speech._text.append

            def note(fragment: str) -> list[SpeechToken]:
                read.append((len(fragment), len(b.engine.opened)))
                return push(fragment)

            monkeypatch.setattr(b.speech._text, "append", note)
            b.speech.push_text(STORY)
            assert read == [(FIRST_CHARACTERS, 0), (CHARACTERS_PER_TURN - FIRST_CHARACTERS, 1)]
            b.speech.end()
            await b.listen()
            assert b.spoken() == b.tokenizer.encode_plain(STORY)

    run(scene())


def test_refused_first_fragment_leaves_nothing_behind(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(max_characters=30) as b:
            with pytest.raises(TextTooLong):
                b.speech.push_text("a" * 31)
            assert b.speech.characters == 0
            b.speech.push_text("b" * 30)

    run(scene())


LONG = "One, two and three. " * 40


def test_long_text_is_processed_in_parts_without_changing_its_tokens(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(max_characters=1000) as whole:
            whole.speech.push_text(LONG)
            assert whole.speech.characters == len(LONG)
            assert len(whole.speech._text.source) == CHARACTERS_PER_TURN
            assert not whole.speech.waiting_for_text
            whole.speech.end()
            await whole.listen()
            assert whole.spoken() == whole.tokenizer.encode_plain(LONG.strip())

    run(scene())


def test_flush_and_end_keep_their_place_behind_pending_text(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(max_characters=2000) as b:
            for text in (LONG, "Four. "):
                b.speech.push_text(text)
                b.speech.flush()
                b.speech.flush()
            b.speech.push_text("Five.")
            b.speech.end()
            await b.listen()
            *first, second, third = b.segments()
            assert (" ".join(first), second, third) == (LONG.strip().lower(), "four.", "five.")

    run(scene())


def test_utterances_with_pending_text_take_turns(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        shared = TextTurns()
        async with bench(max_characters=1000, text_turns=shared) as long, bench(text_turns=shared) as short:
            long.speech.push_text(LONG)
            short.speech.push_text("Short.")
            short.speech.end()
            assert not short.speech._text.source, "the budget of this turn is spent"
            await turns(4)
            assert short.speech._text.source == "Short."
            assert 0 < len(long.speech._text.source) <= 5 * CHARACTERS_PER_TURN
            await short.listen()

    run(scene())


def test_text_above_the_limit_is_refused_while_text_is_pending(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(max_characters=len(LONG)) as b:
            b.speech.push_text(LONG)
            with pytest.raises(TextTooLong) as refused:
                b.speech.push_text("!")
            assert refused.value.received == len(LONG) + 1
            b.speech.end()
            await b.listen()
            assert b.spoken() == b.tokenizer.encode_plain(LONG.strip())

    run(scene())


def test_empty_text_that_was_pending_is_raised_by_the_iteration(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(max_characters=1000) as b:
            b.speech.push_text(" " * 500)
            b.speech.end()
            with pytest.raises(EmptyText):
                await b.listen()

    run(scene())


def test_closed_speech_processes_no_pending_text(bench: Callable[..., SpeechBench]) -> None:
    async def scene() -> None:
        async with bench(max_characters=1000) as b:
            b.speech.push_text(LONG)
            await b.speech.aclose()
            before = b.speech._text.characters
            await settle()
            assert b.speech._text.characters == before

    run(scene())
