from __future__ import annotations

import numpy as np
import pytest
from eval.speaker import Speaker, Utterance
from fakes.tone import ToneSynthesizer
from fakes.virtual_time import run
from voxgate.pipeline.speech import FRAME_SAMPLES, SamplingOptions

TEXT = "One two three four five six."


def spoken(words_per_s: float | None = None) -> Utterance:
    async def main() -> Utterance:
        voice = ToneSynthesizer()
        await voice.start()
        speaker = Speaker(voice, at_once=1)
        pace = {} if words_per_s is None else {"words_per_s": words_per_s}
        return await speaker.speak(voice.default_voice, TEXT, 3, SamplingOptions(), **pace)

    return run(main())


def test_the_whole_text_is_spoken_to_its_end() -> None:
    at_once = spoken()
    assert at_once.ended
    assert len(at_once.arrivals_s) * FRAME_SAMPLES == len(at_once.pcm) > 0


@pytest.mark.parametrize("words_per_s", [3.0, 12.0])
def test_text_comes_at_its_pace_and_says_the_same(words_per_s: float) -> None:
    paced = spoken(words_per_s)
    assert np.array_equal(paced.pcm, spoken().pcm)
    # Nothing of the last word can be there before it was written.
    assert paced.arrivals_s[-1] >= 5 / words_per_s
    assert paced.arrivals_s[0] < 5 / words_per_s
