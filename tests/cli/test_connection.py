"""Commands reach a gateway that requires a key, over TLS with a self-signed certificate."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import wave
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fakes.certificates import self_signed
from fakes.gateway.packet_encoder import FakeEncoder
from fakes.pipeline.tone_synthesizer import ToneSynthesizer
from fakes.waiting import DEADLINE_S
from voxgate.cli.connection import gateway_unreachable_message, tls_context
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


def test_certificate_is_trusted_in_addition_to_those_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (system, _), (own, _) = self_signed(tmp_path, "system"), self_signed(tmp_path, "own")
    monkeypatch.setenv("SSL_CERT_FILE", str(system))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))
    context = tls_context(argparse.Namespace(ca=own))
    assert context is not None
    assert context.cert_store_stats()["x509"] == 2


@pytest.mark.parametrize("command", [["voices"], ["say", "--output", os.devnull, "Well."]])
async def test_certificate_that_is_not_trusted_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    async with guarded(tmp_path) as (url, _):
        assert await asyncio.to_thread(main, [*command, "--url", url]) == 1
    output = capsys.readouterr().err
    assert "certificate verify failed" in output
    assert "--ca" in output
    assert "voxgate serve" not in output


async def test_tls_port_without_tls_is_not_said_to_be_closed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with guarded(tmp_path) as (url, _):
        plain = url.replace("wss", "ws")
        assert await asyncio.to_thread(main, ["say", "--url", plain, "--output", os.devnull, "Well."]) == 1
        assert await asyncio.to_thread(main, ["voices", "--url", plain]) == 1
    say, voices = capsys.readouterr().err.splitlines()
    assert "did not receive a valid HTTP response" in say
    assert "voxgate serve" not in say + voices


@pytest.mark.parametrize(
    ("url", "reason", "advised"),
    [
        ("ws://127.0.0.1:8000", ConnectionRefusedError(111, "refused"), True),
        ("localhost:8000", OSError("Multiple exceptions: refused, refused"), True),
        ("ws://[::1]:8000", ConnectionRefusedError(111, "refused"), True),
        ("ws://speech.example:8000", ConnectionRefusedError(111, "refused"), False),
        ("ws://127.0.0.1:8000", ConnectionResetError(104, "reset"), False),
        ("ws://127.0.0.1:8000", TimeoutError("timed out"), False),
    ],
)
def test_starting_a_gateway_is_advised_for_a_closed_port_of_this_machine(
    url: str, reason: OSError, advised: bool
) -> None:
    message = gateway_unreachable_message(url, reason)
    assert url in message
    assert ("voxgate serve" in message) == advised
    assert advised or str(reason) in message


async def test_key_is_read_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOXGATE_API_KEY", "k")
    async with guarded(tmp_path) as (url, certificate):
        assert await asyncio.to_thread(main, ["voices", "--url", url, "--ca", certificate]) == 0


def test_missing_certificate_file_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = str(tmp_path / "none.pem")
    assert main(["voices", "--url", "wss://127.0.0.1:9", "--ca", missing]) == 1
    assert main(["say", "--url", "wss://127.0.0.1:9", "--ca", missing, "--output", str(tmp_path / "o.wav"), "x"]) == 1
    assert capsys.readouterr().err.count("No such file") == 2
