"""A phone line: speech as 8 kHz mu-law for Twilio Media Streams.

    python examples/phone_bridge.py --port 8080

Point the media stream at this port, behind a proxy that terminates TLS. The caller hears a greeting; a digit interrupts
the speech and is answered.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
from typing import Any

from voxgate.client import AudioFormat, Client, Utterance
from websockets.asyncio.server import ServerConnection, serve

PHONE = AudioFormat(codec="mulaw", sample_rate=8000, packet_ms=20)
GREETING = "Thank you for calling. Press one to hear our opening hours, or two to leave a message."
ANSWERS = {"1": "We are open from Monday to Friday, nine to five.", "2": "Please leave your message after the tone."}


class Call:
    """One call: its speech, and how to interrupt it."""

    def __init__(self, phone: ServerConnection, client: Client, stream: str) -> None:
        self.phone, self.client, self.stream = phone, client, stream
        self.utterance: Utterance | None = None

    async def say(self, text: str) -> None:
        # The gateway sends audio at the pace of playback, so that little is wasted when the caller hangs up.
        async with self.client.utterance(format=PHONE) as self.utterance:
            await self.utterance.feed([text])
            async for audio in self.utterance.audio():
                await self.send("media", media={"payload": base64.b64encode(audio.payload).decode()})
        await self.send("mark", mark={"name": "said"})

    async def stop(self) -> str:
        """Interrupts the speech; returns the text that was spoken."""
        await self.send("clear")
        if self.utterance is None or self.utterance.finished:
            return ""
        return (await self.utterance.interrupt()).text_spoken

    async def send(self, event: str, **fields: Any) -> None:
        await self.phone.send(json.dumps({"event": event, "streamSid": self.stream, **fields}))


async def answer(phone: ServerConnection, client: Client) -> None:
    call: Call | None = None
    async with asyncio.TaskGroup() as group:
        async for raw in phone:
            message = json.loads(raw)
            match message["event"]:
                case "start":
                    call = Call(phone, client, message["start"]["streamSid"])
                    group.create_task(call.say(GREETING))
                case "dtmf" if call is not None:
                    spoken = await call.stop()
                    print(f"digit {message['dtmf']['digit']} after {spoken!r}", flush=True)
                    group.create_task(call.say(ANSWERS.get(message["dtmf"]["digit"], GREETING)))
                case "stop":
                    break
        if call is not None:
            await call.stop()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--gateway", default="ws://127.0.0.1:8000")
    arguments = parser.parse_args()
    async with (
        Client(arguments.gateway) as client,
        serve(lambda phone: answer(phone, client), "127.0.0.1", arguments.port) as server,
    ):
        print(f"listening on port {server.sockets[0].getsockname()[1]}", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
