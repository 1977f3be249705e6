"""Counting of short utterances, at a gateway with a synthesizer of tones."""

from __future__ import annotations

from eval.short_texts import SEEDS, count_ends, short_texts
from fakes.gateway.loopback import gateway
from fakes.pipeline.tone_synthesizer import ToneScript, ToneSynthesizer


async def test_utterances_are_counted_by_how_they_end() -> None:
    async with gateway(ToneSynthesizer(ToneScript(max_frames=4))) as served:
        ends = await count_ends(f"ws://127.0.0.1:{served.port}", "ada", ["Yes.", "No.", "It does not end."])
    assert ends == {"end": 2 * len(SEEDS), "length": len(SEEDS)}


def test_texts_have_one_to_three_words() -> None:
    texts = short_texts()
    assert len(texts) == len(set(texts)) == 40
    assert {len(text.split()) for text in texts} == {1, 2, 3}
