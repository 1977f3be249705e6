"""A cloned voice on a running gateway: uploaded while another voice speaks, used, stored, removed."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
import pytest_asyncio
import soundfile
from fakes.pipeline.base_checkpoint import write_demo_base
from fakes.waiting import DEADLINE_S
from voxgate.cli.serve import build_library
from voxgate.client import SpeechError, connect
from voxgate.client.events import Audio, Done
from voxgate.codecs.encode import PacketEncoder
from voxgate.gateway.server import Gateway
from voxgate.gateway.settings import Settings
from voxgate.pipeline.cloned_voice import ClonedVoice
from voxgate.pipeline.cloning.library import VoiceLibrary
from voxgate.pipeline.interface import SpeechRequest
from voxgate.pipeline.synthesizer import QwenSynthesizer
from voxgate.pipeline.voice_model import SynthesizerOptions

from .serving import serving

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

DEMO = Path(__file__).parents[2] / "voices" / "demo"
TEXT = "Good morning, how are you today?"
UNPACED_FRAMES = 10**6
"""Credit for speech that is not played in real time."""
STEP = 1.01 / 32_767
"""One step of 16 bits: audio decoded in another batch may be rounded the other way."""


@dataclass
class CloningGateway:
    port: int
    synthesizer: QwenSynthesizer
    settings: Settings
    folder: Path

    async def synthesize(self, voice: str, seed: int = 1, text: str = TEXT) -> np.ndarray:
        """Speech over a socket, float32 [n] in steps of 16 bits."""
        async with (
            asyncio.timeout(DEADLINE_S),
            connect(f"ws://127.0.0.1:{self.port}") as session,
            session.utterance(voice=voice, seed=seed, pacing="none") as utterance,
        ):
            await utterance.send(text)
            await utterance.end()
            events = [event async for event in utterance.events()]
        assert isinstance(events[-1], Done)
        payload = b"".join(event.payload for event in events if isinstance(event, Audio))
        return np.frombuffer(payload, np.int16).astype(np.float32) / 32_767

    async def offline(self, voice: str, seed: int = 1) -> np.ndarray:
        """The same from the pipeline, float32 [n]."""
        speech = self.synthesizer.open(SpeechRequest(voice=voice, seed=seed, trim_silence=True))
        speech.advance(UNPACED_FRAMES)
        speech.push_text(TEXT)
        speech.end()
        pcm = np.concatenate([chunk.pcm async for chunk in speech])
        await speech.aclose()
        return pcm

    async def upload(self, recording: bytes, **fields: str) -> dict[str, Any]:
        form = aiohttp.FormData(fields)
        form.add_field("audio", io.BytesIO(recording), filename="voice.flac")
        async with self.http() as client, client.post("/v1/voices", data=form) as response:
            assert response.status == 201, await response.text()
            return dict(await response.json())

    def http(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(f"http://127.0.0.1:{self.port}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CloningGateway]:
    root = tmp_path_factory.mktemp("cloned")
    folder = write_demo_base(root / "base", DEMO)
    synthesizer = QwenSynthesizer(folder, SynthesizerOptions(slots=2))
    settings = Settings(port=0, voices_dir=root / "voices", checkpoint=str(folder), starts_per_s=1000)
    library = build_library(settings, folder, synthesizer)
    served = Gateway(settings, synthesizer, PacketEncoder, library=library)
    async with serving(served, synthesizer) as port:
        yield CloningGateway(port, synthesizer, settings, folder)


def recording(pcm: np.ndarray) -> bytes:
    """A stereo FLAC file at a rate that is not the model's."""
    file = io.BytesIO()
    soundfile.write(file, np.repeat(pcm[:, None], 2, axis=1), 32_000, format="FLAC")
    return file.getvalue()


async def test_cloned_voices_from_upload_to_removal(gateway: CloningGateway) -> None:
    assert not gateway.synthesizer.voices
    assert gateway.synthesizer.step_times["talker"], "the capacity is measured before there is a voice"
    with pytest.raises(SpeechError) as refused:
        await gateway.synthesize("first")
    assert refused.value.code == "unknown_voice"
    tone = (0.3 * np.sin(np.arange(64_000) / 20)).astype(np.float32)
    await gateway.upload(recording(tone), name="First")
    first = await gateway.synthesize("first")
    assert len(first) > 24_000
    assert np.abs(first).max() > 0.1

    speaking = asyncio.create_task(
        gateway.synthesize("first", text=f"{TEXT} And now to something longer, while others come.")
    )
    spoken = await gateway.offline("first")
    made = await gateway.upload(recording(spoken), name="second", text=TEXT)
    assert made["in_context"]
    await speaking
    second = await gateway.synthesize("second")
    np.testing.assert_allclose(second, await gateway.offline("second"), atol=STEP)
    assert len(second) != len(first) or np.abs(second - first).max() > 0.03
    np.testing.assert_allclose(await gateway.synthesize("first"), first, atol=STEP)

    again = QwenSynthesizer(gateway.folder, SynthesizerOptions(slots=2))
    library: VoiceLibrary = build_library(gateway.settings, gateway.folder, again)
    await library.refresh()
    assert list(again.voices) == ["first", "second"]

    async with gateway.http() as client, client.delete("/v1/voices/second") as response:
        assert response.status == 204
    with pytest.raises(SpeechError) as refused:
        await gateway.synthesize("second")
    assert refused.value.code == "unknown_voice"
    np.testing.assert_allclose(await gateway.synthesize("first"), first, atol=STEP)


async def test_voice_removed_while_it_speaks_is_spoken_to_the_end(gateway: CloningGateway) -> None:
    """With the reference's state kept by the codec since its first utterance; a voice of the same name differs."""
    choice, synthesizer = np.random.default_rng(1), gateway.synthesizer
    vector = choice.standard_normal(320).astype(np.float32)
    codes = [choice.integers(0, 512, (30, 16)) for _ in range(2)]
    synthesizer.add_voice(ClonedVoice("brief", vector, TEXT, codes[0]))
    spoken = [await gateway.offline("brief") for _ in range(2)]
    np.testing.assert_allclose(spoken[1], spoken[0], atol=STEP)
    speech = synthesizer.open(SpeechRequest(voice="brief", seed=1))
    synthesizer.remove_voice("brief")
    synthesizer.add_voice(ClonedVoice("brief", vector, TEXT, codes[1]))
    other = asyncio.create_task(gateway.offline("brief"))
    speech.advance(UNPACED_FRAMES)
    speech.push_text(TEXT)
    speech.end()
    pcm = np.concatenate([chunk.pcm async for chunk in speech])
    await speech.aclose()
    np.testing.assert_allclose(pcm, spoken[0], atol=STEP)
    replaced = await other
    assert len(replaced) != len(pcm) or np.abs(replaced - pcm).max() > 0.03
    synthesizer.remove_voice("brief")


async def test_text_taken_back_after_the_voice_was_removed_is_replaced_in_that_voice(gateway: CloningGateway) -> None:
    vector = np.random.default_rng(2).standard_normal(320).astype(np.float32)
    gateway.synthesizer.add_voice(ClonedVoice("parting", vector))
    heard: asyncio.Queue[Audio | None] = asyncio.Queue()
    async with (
        asyncio.timeout(DEADLINE_S),
        connect(f"ws://127.0.0.1:{gateway.port}") as session,
        session.utterance(voice="parting", seed=1) as utterance,
    ):

        async def read() -> None:
            async for event in utterance.events():
                if isinstance(event, Audio | Done):
                    heard.put_nowait(event if isinstance(event, Audio) else None)

        await utterance.send(f"{TEXT} " * 3)
        reading = asyncio.create_task(read())
        await heard.get()
        gateway.synthesizer.remove_voice("parting")
        kept = await utterance.retract(len(TEXT))
        await utterance.send("Goodbye.")
        await utterance.end()
        await reading
    assert len(TEXT) <= kept.characters < 3 * len(TEXT)
    assert utterance.done is not None
    assert utterance.done.characters == kept.characters + len("Goodbye.")
