from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from fakes.humming_gateway import FakeGateway
from voxgate.client import AudioFormat, connect, say


async def test_says_a_string(gateway: FakeGateway) -> None:
    samples = [audio.samples async for audio in say("Hello", url=gateway.url, format=AudioFormat(sample_rate=8000))]
    assert samples == [640] * 5 + [0]


async def test_audio_comes_while_the_text_is_still_written(gateway: FakeGateway) -> None:
    heard: asyncio.Queue[int] = asyncio.Queue()

    async def written() -> AsyncIterator[str]:
        for index, character in enumerate("abc"):
            yield character
            assert await heard.get() == index  # the next character is written only after this one was heard

    async with aclosing(say(written(), url=gateway.url)) as speech:
        async for audio in speech:
            heard.put_nowait(audio.seq)
    assert audio.last


async def test_a_failing_source_is_raised_to_the_listener(gateway: FakeGateway) -> None:
    async def broken() -> AsyncIterator[str]:
        yield "a"
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        async for _ in say(broken(), url=gateway.url):
            pass


async def test_stopping_early_interrupts(gateway: FakeGateway) -> None:
    async def unfinished() -> AsyncIterator[str]:
        yield "Hel"
        await asyncio.Event().wait()

    async with aclosing(say(unfinished(), url=gateway.url)) as speech:
        assert (await anext(speech)).first
    async with connect(gateway.url):  # by now the gateway has read what came before
        pass
    assert gateway.received[-1] == {"type": "interrupt", "utterance": "u1"}


def test_the_client_is_light() -> None:
    heavy = "{'torch', 'numpy', 'pydantic', 'vllm'}"
    code = f"import sys, voxgate.client; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
