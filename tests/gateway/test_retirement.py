"""Closing speeches: the ticket comes back last, whatever happens on the way."""

from __future__ import annotations

import asyncio

import pytest
from fakes.packets import FakeEncoder
from fakes.tone import Script, ToneSpeech, ToneSynthesizer
from fakes.virtual_time import run
from voxgate.codecs.format import AudioFormat
from voxgate.gateway.access.caller import Caller
from voxgate.gateway.access.keys import KeyLimits
from voxgate.gateway.admission import Admission
from voxgate.gateway.retirement import Retirement
from voxgate.gateway.utterance import Utterance
from voxgate.pipeline.speech import SpeechRequest


async def utterance(admission: Admission, synthesizer: ToneSynthesizer) -> Utterance:
    audio_format, request = AudioFormat("pcm"), SpeechRequest("ada")
    made = Utterance(
        "a",
        1,
        request,
        audio_format,
        FakeEncoder(audio_format),
        max_characters=100,
        lead_ms=400,
        outbox_ms=1000,
        words=False,
    )
    await synthesizer.start()
    made.ticket = admission.join(Caller("k", KeyLimits()), lambda _ticket, _now_s: None, 0.0)
    made.speech = synthesizer.open(request)
    return made


def test_the_ticket_comes_back_when_the_engine_confirmed() -> None:
    async def scene() -> None:
        admission = Admission(lambda: 1, 0, 0)
        retirement = Retirement(admission)
        retired = await utterance(admission, ToneSynthesizer(Script(close_s=0.5)))
        listening = asyncio.create_task(asyncio.sleep(100))
        retirement.retire(retired, listening)
        await asyncio.sleep(0.4)
        assert listening.cancelled()
        assert (admission.active, retirement.closing) == (1, 1)
        await retirement.finish(1)
        assert (admission.active, retirement.closing) == (0, 0)

    run(scene())


def test_a_close_that_fails_gives_the_ticket_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: ToneSpeech) -> None:
        raise RuntimeError("scripted")

    async def scene() -> None:
        admission = Admission(lambda: 1, 0, 0)
        retirement = Retirement(admission)
        retired = await utterance(admission, ToneSynthesizer())
        monkeypatch.setattr(ToneSpeech, "aclose", fail)
        retirement.retire(retired, None)
        await retirement.finish(1)
        assert admission.active == 0

    run(scene())


def test_the_wait_for_the_last_ones_is_bounded() -> None:
    async def scene() -> None:
        admission = Admission(lambda: 1, 0, 0)
        retirement = Retirement(admission)
        retirement.retire(await utterance(admission, ToneSynthesizer(Script(close_s=100))), None)
        await retirement.finish(2.0)
        assert asyncio.get_running_loop().time() == pytest.approx(2.0)
        assert admission.active == 1

    run(scene())
