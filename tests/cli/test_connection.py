"""Commands reach a gateway that requires a key, over TLS with a self-signed certificate."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import wave
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fakes.certificates import self_signed
from fakes.gateway.packet_encoder import FakeEncoder
from fakes.pipeline.tone_synthesizer import ToneSynthesizer
from fakes.waiting import DEADLINE_S
from voxgate.cli.main import main
from voxgate.gateway.access.keys import hash_key
from voxgate.gateway.server import Gateway
from voxgate.gateway.settings import Settings


@contextlib.asynccontextmanager
async def guarded(folder: Path) -> AsyncIterator[tuple[str, str]]:
    """Runs a gateway with a key and a certificate; yields its address and the certificate's file."""
    certificate, key = self_signed(folder, "gateway")
    settings = Settings(port=0, keys=(f"ada={hash_key('k')}",), tls_certificate=certificate, tls_key=key)
    gateway = Gateway(settings, synthesizer := ToneSynthesizer(), FakeEncoder)
    await gateway.open()
    await synthesizer.start()
    try:
        yield f"wss://127.0.0.1:{gateway.port}", str(certificate)
    finally:
        await gateway.close()


async def test_commands_reach_a_gateway_with_key_and_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with guarded(tmp_path) as (url, certificate):
        gateway_flags = ["--url", url, "--ca", certificate]
        output = tmp_path / "out.wav"
        say = ["say", "--quiet", "--output", str(output), "Well."]
        assert await asyncio.to_thread(main, ["voices", *gateway_flags]) == 1
        assert "set a key with --key" in capsys.readouterr().err
        assert await asyncio.to_thread(main, ["voices", *gateway_flags, "--key", "k"]) == 0
        assert "ada" in capsys.readouterr().out
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "voxgate.cli", *say, *gateway_flags, "--key", "k"), stderr=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(DEADLINE_S):
            _, errors = await process.communicate()
        assert process.returncode == 0, errors
        with wave.open(str(output)) as written:
            assert written.getnframes() > 0


async def test_key_is_read_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOXGATE_API_KEY", "k")
    async with guarded(tmp_path) as (url, certificate):
        assert await asyncio.to_thread(main, ["voices", "--url", url, "--ca", certificate]) == 0


def test_missing_certificate_file_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = str(tmp_path / "none.pem")
    assert main(["voices", "--url", "wss://127.0.0.1:9", "--ca", missing]) == 1
    assert main(["say", "--url", "wss://127.0.0.1:9", "--ca", missing, "--output", str(tmp_path / "o.wav"), "x"]) == 1
    assert capsys.readouterr().err.count("No such file") == 2
