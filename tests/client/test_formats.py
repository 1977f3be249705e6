"""Every format through a real gateway with the tone synthesizer; the client checks each message."""

from __future__ import annotations

import pytest
from fakes.gateway.loopback import gateway
from voxgate.client import AudioFormat, connect
from voxgate.client.events import SAMPLE_BYTES
from voxgate.codecs.encode import PacketEncoder
from voxgate.codecs.format import CODECS

MAGIC = {
    "ogg_opus": b"OggS",
    "wav": b"RIFF",
    "mp3": b"\xff",
    "flac": b"fLaC",
    "wav_f32": b"RIFF",
    "wav_mulaw": b"RIFF",
    "wav_alaw": b"RIFF",
}


@pytest.mark.parametrize(
    ("codec", "rate"), [(codec, rate) for codec in CODECS for rate in CODECS[codec].sample_rates_hz]
)
async def test_every_format_arrives_complete(codec: str, rate: int) -> None:
    async with gateway(encoder=PacketEncoder) as served, connect(f"ws://127.0.0.1:{served.port}") as session:
        requested = AudioFormat(codec, rate)  # type: ignore[arg-type] # one of the names
        async with session.utterance(format=requested, pacing="none") as utterance:
            await utterance.feed("The quick brown fox.")
            payload = b"".join([audio.payload async for audio in utterance.audio()])
    assert utterance.started is not None
    assert utterance.done is not None
    assert (utterance.format.codec, utterance.format.sample_rate) == (codec, rate)
    assert utterance.done.samples == utterance.done.frames * rate * 80 // 1000
    assert payload.startswith(MAGIC.get(codec, b""))
    if codec in SAMPLE_BYTES:
        assert len(payload) == SAMPLE_BYTES[codec] * utterance.done.samples
