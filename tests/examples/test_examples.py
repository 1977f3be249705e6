"""Every example, run as a process against a gateway with the tone synthesizer."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import sys
import wave
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from aiohttp import web
from compat.clients import ENVIRONMENTS
from fakes.gateway.loopback import gateway
from fakes.waiting import DEADLINE_S
from voxgate.codecs.encode import PacketEncoder
from voxgate.codecs.g711 import decode_mulaw
from voxgate.codecs.pcm import decode_s16le
from voxgate.gateway.server import Gateway
from websockets.asyncio.client import connect

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
LINKS = str(ROOT / "build/links")
"""This project's packages alone, for Pythons of other environments."""


@pytest.fixture
async def served() -> AsyncIterator[Gateway]:
    # All audio is sent ahead: nothing waits for playback.
    pacing = {"send_ahead_ms": 10_000, "lookahead_ms": 12_000}
    async with gateway(encoder=PacketEncoder, voice_aliases=("heart=ada",), **pacing) as running:
        yield running


async def run(*command: object, **environment: str) -> bytes:
    """Returns the standard output of a process that has to exit with status 0."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command), stdout=PIPE, stderr=PIPE, env=os.environ | environment
    )
    try:
        async with asyncio.timeout(DEADLINE_S):
            out, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, errors.decode()[-2000:]
    return out


def loud(pcm: np.ndarray) -> bool:
    return bool(np.abs(pcm).max() > 0.05)


async def test_language_model_tokens_are_spoken(served: Gateway) -> None:
    requests: list[dict[str, object]] = []

    async def complete(request: web.Request) -> web.StreamResponse:
        requests.append(await request.json())
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        deltas = [{"role": "assistant"}, {"content": "It scatters "}, {"content": "blue light."}, {}]
        for delta in deltas:
            await answer.write(b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\n\n")
        await answer.write(b'data: {"choices": []}\n\ndata: [DONE]\n\n')
        return answer

    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    llm = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        here = f"ws://127.0.0.1:{served.port}"
        script = EXAMPLES / "llm_to_speech.py"
        spoken = await run(sys.executable, script, "Why?", "--llm", llm, "--model", "m", "--gateway", here)
        fixed = await run(sys.executable, script, "Why?", "--pause-s", 0, "--gateway", here)
    finally:
        await runner.cleanup()
    assert requests[0]["messages"] == [{"role": "user", "content": "Why?"}]
    assert loud(decode_s16le(spoken))
    assert len(fixed) > 2 * len(spoken)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_curl_fetches_mp3(served: Gateway) -> None:
    here = f"http://127.0.0.1:{served.port}"
    mp3 = await run(EXAMPLES / "curl_ffplay.sh", 'Say "hello\\there".\nPlease.', GATEWAY=here, PLAYER="cat")
    assert mp3[0] == 0xFF
    assert len(mp3) > 1000


async def test_caller_hears_mu_law_and_a_digit_interrupts(served: Gateway) -> None:
    command = [sys.executable, str(EXAMPLES / "phone_bridge.py"), "--port", "0"]
    bridge = await asyncio.create_subprocess_exec(*command, "--gateway", f"ws://127.0.0.1:{served.port}", stdout=PIPE)
    assert bridge.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE_S):
            port = int((await bridge.stdout.readline()).split()[-1])
            async with connect(f"ws://127.0.0.1:{port}") as phone:
                await phone.send(json.dumps({"event": "start", "start": {"streamSid": "MZ1"}}))
                audio = b""
                while len(audio) < 4000:
                    message = json.loads(await phone.recv())
                    assert (message["event"], message["streamSid"]) == ("media", "MZ1")
                    payload = base64.b64decode(message["media"]["payload"])
                    assert len(payload) == 160
                    audio += payload
                assert loud(decode_mulaw(audio))
                await phone.send(json.dumps({"event": "dtmf", "dtmf": {"digit": "1"}}))
                while json.loads(await phone.recv())["event"] != "clear":
                    pass  # audio sent before the interrupt
                assert (await bridge.stdout.readline()).startswith(b"digit 1 after ")
                while json.loads(await phone.recv())["event"] != "media":
                    pass
                await phone.send(json.dumps({"event": "stop"}))
    finally:
        bridge.kill()
        await bridge.wait()


@pytest.mark.compat
@pytest.mark.parametrize(("library", "scheme"), [("pipecat", "ws"), ("livekit", "http")])
async def test_agents_answer(served: Gateway, tmp_path: Path, library: str, scheme: str) -> None:
    path = tmp_path / "answer.wav"
    python = ENVIRONMENTS / library / "bin" / "python"
    here = f"{scheme}://127.0.0.1:{served.port}"
    await run(python, EXAMPLES / f"{library}_agent.py", path, "What time is it?", GATEWAY=here, PYTHONPATH=LINKS)
    with wave.open(str(path)) as file:
        assert file.getframerate() == 24_000
        assert file.getnframes() > 24_000
        assert loud(decode_s16le(file.readframes(file.getnframes())))
