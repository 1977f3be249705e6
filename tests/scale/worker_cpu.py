"""Measures the processor time per frame of worker processes: `python -m scale.worker_cpu --workers 2 [...]`.

The workers are the real ones; a tone engine makes the frames at a given rate. Processor time per frame hardly depends
on other load of the machine: run it twice and compare.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import struct
import sys
import time
from asyncio.subprocess import PIPE
from importlib.resources import files
from pathlib import Path

import psutil
from fakes.pipeline.tone_engine import ToneEngine
from voxgate.gateway.settings import Settings
from voxgate.gateway.workers.speech_process import SpeechProcess

DEMO = Path(str(files("voxgate.voices"))) / "demo"
COMMAND = [sys.executable, "-m", "voxgate.cli.serve_worker"]
TEXT = "Some words to be said one after another in a long row of them. " * 30
SESSIONS = {"plain": "", "resume": "?resume=new", "checkpoints": "?resume=new&checkpoints=1"}
CONFIRM_BYTES = 1 << 16
CONTINUATION, TEXT_FRAME, BINARY_FRAME, CLOSE, PING = 0, 1, 2, 8, 9


class MinimalClient:
    """A minimal WebSocket client: that of a library would need more processor time than the gateway."""

    def __init__(self, port: int, options: argparse.Namespace) -> None:
        self._port, self._options = port, options
        self.first_s: float | None = None
        self.messages = 0
        self._received = 0
        """All messages of the gateway, which a session that can be resumed keeps until they are confirmed."""
        self._unconfirmed_bytes = 0
        self.error: str | None = None

    async def listen(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)
        key = base64.b64encode(os.urandom(16)).decode()
        self._writer.write(
            f"GET /v1/speech{SESSIONS[self._options.session]} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
            f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        await self._reader.readuntil(b"\r\n\r\n")
        options = self._options
        start = {
            "format": {"codec": options.codec},
            "pacing": options.pacing,
            "sampling": {"max_frames": options.frames},
        }
        for kind, fields in (("start", start), ("text", {"text": TEXT[: 10 * options.frames]}), ("end", {})):
            self._send(TEXT_FRAME, json.dumps({"type": kind, "utterance": "a", **fields}).encode())
        began_s = time.monotonic()
        while await self._read(began_s):
            pass
        self._writer.close()

    async def _read(self, began_s: float) -> bool:
        """Read one frame. Returns whether more frames follow."""
        first, length = await self._reader.readexactly(2)
        if length == 126:
            (length,) = struct.unpack("!H", await self._reader.readexactly(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", await self._reader.readexactly(8))
        payload, opcode = await self._reader.readexactly(length), first & 15
        if self._options.session != "plain" and opcode in (TEXT_FRAME, BINARY_FRAME):
            self._confirm(length)
        if opcode == BINARY_FRAME:
            self.messages += 1
            self.first_s = self.first_s or time.monotonic() - began_s
        elif opcode == PING:
            self._send(10, payload)
        elif opcode == TEXT_FRAME and (message := json.loads(payload))["type"] in ("done", "error"):
            self.error = message.get("code")
            return False
        return opcode != CLOSE

    def _confirm(self, length: int) -> None:
        self._received += 1
        self._unconfirmed_bytes += length
        if self._unconfirmed_bytes > CONFIRM_BYTES:
            self._unconfirmed_bytes = 0
            self._send(TEXT_FRAME, json.dumps({"type": "received", "messages": self._received}).encode())

    def _send(self, opcode: int, payload: bytes) -> None:
        """Send a frame masked with zeros, which costs no time."""
        length = bytes([0x80 | len(payload)]) if len(payload) < 126 else bytes([0xFE]) + struct.pack("!H", len(payload))
        self._writer.write(bytes([0x80 | opcode]) + length + b"\0\0\0\0" + payload)


async def listen(port: int, options: argparse.Namespace) -> None:
    """Run the listeners, in a process of their own, and print their figures."""
    listeners = [MinimalClient(port, options) for _ in range(options.listeners)]
    await asyncio.gather(*(each.listen() for each in listeners))
    firsts = sorted(each.first_s for each in listeners if each.first_s is not None)
    errors = sorted({each.error for each in listeners if each.error})
    messages = sum(each.messages for each in listeners)
    print(json.dumps({"first_ms_p50": round(1000 * firsts[len(firsts) // 2]), "messages": messages, "errors": errors}))


async def measure(options: argparse.Namespace, arguments: list[str]) -> None:
    engine = ToneEngine(
        DEMO, slots=options.listeners, step_s=options.step_ms / 1000, attached_processes=options.workers
    )
    settings = Settings(port=0, workers=options.workers, log_level="error", sockets=10_000)
    served = SpeechProcess(settings, engine, DEMO, options.workers, COMMAND)
    keeping: asyncio.Task[None] | None = None
    try:
        await served.open()
        keeping = asyncio.create_task(served.run_engine())
        while not served.state.speaks:
            await asyncio.sleep(0.05)
        before, own, began_s = _cpu_s(served.pids), _cpu_s([os.getpid()]), time.monotonic()
        command = [sys.executable, "-m", "scale.worker_cpu", *arguments, "--port", f"{served.port}"]
        clients = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
        heard = json.loads((await clients.communicate())[0])
        spent = [round(after - cpu_s, 2) for after, cpu_s in zip(_cpu_s(served.pids), before, strict=True)]
        heard |= {
            "frames": engine.frames,
            "seconds": round(time.monotonic() - began_s, 1),
            "cpu_s_of_workers": spent,
            "worker_us_a_frame": round(1e6 * sum(spent) / engine.frames, 1),
            # The tone engine and its codec run in this process.
            "rest_us_a_frame": round(1e6 * (_cpu_s([os.getpid()])[0] - own[0]) / engine.frames, 1),
        }
        print(json.dumps(heard))
    finally:
        if keeping is not None:
            keeping.cancel()
        await served.close()


def _cpu_s(pids: list[int]) -> list[float]:
    return [sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids]


def main() -> None:
    import uvloop

    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    for name, default in (("workers", 1), ("listeners", 50), ("frames", 200)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--step-ms", type=float, default=20.0, help="time of a step of the engine")
    parser.add_argument("--codec", default="pcm", choices=("pcm", "opus"))
    parser.add_argument("--pacing", default="playback", choices=("playback", "none"))
    parser.add_argument("--session", default="plain", choices=SESSIONS, help="what the clients ask for")
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    uvloop.run(measure(options, sys.argv[1:]) if options.port is None else listen(options.port, options))


if __name__ == "__main__":
    main()
