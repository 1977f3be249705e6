"""Greedy codes of every task and layout: by an independent loop, and by the real engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
import torch
from fakes.waiting import DEADLINE_S
from family_cases import CASES, ReferenceCase
from small_family import VARIANTS
from voxgate.pipeline.interface import FinishReason
from voxgate.pipeline.talker.engine import TalkerEngine
from voxgate.pipeline.talker.generation import Sampling
from voxgate.pipeline.talker.vllm.config import EngineOptions

from ..pipeline.talker.plain_talker import Options, PlainTalker, Spoken, Voice
from .conftest import LocalModel, ReferenceRecording

NEAREST = 1e-5
"""Smallest margin of a draw; rounding differs by about 1e-6."""


def codes_of(recorded: ReferenceRecording, case: ReferenceCase) -> list[list[int]]:
    codes: list[list[int]] = recorded[f"{case.name}/codes"].tolist()
    return codes


def frame_cap(case: ReferenceCase) -> int:
    """Frames of a case that reaches its limit: the reference draws one more code than it makes frames."""
    return case.max_new_tokens - 1


def speak_plainly(local_model: LocalModel, case: ReferenceCase, *, early_end: bool = True) -> Spoken:
    """The codes of the plain loop, which shares no code with the pipeline."""
    prompt = local_model.prompt(case)
    reference = prompt.text[len(prompt.head) :]
    encode = local_model.tokenizer.tokenizer.encode
    told = encode(f"<|im_start|>user\n{case.instructions}<|im_end|>\n").ids if case.instructions else ()
    base = case.family.model_type == "base"
    voice = Voice(
        speaker=case.speaker,
        vector=torch.from_numpy(case.speaker_vector) if base else None,
        language=case.language,
        instruct=tuple(told),
        reference=reference,
        frames=tuple(map(tuple, case.reference_codes.tolist())) if case.frames else (),
        streaming=case.streaming,
    )
    options = Options(temperature=0.0, predictor_temperature=0.0, penalty=case.penalty)
    talker = PlainTalker(local_model.folder)
    return talker.speak(local_model.tokens(case.text), 0, options, voice, frame_cap(case), early_end=early_end)


def test_cases_cover_both_widths_and_both_ways_to_end(recorded: Callable[[str], ReferenceRecording]) -> None:
    lengths = {(case.family.hidden, len(codes_of(recorded("speech"), case)) == frame_cap(case)) for case in CASES}
    assert lengths >= {(48, True), (48, False), (32, False)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_plain_loop_gives_the_codes_of_the_reference(
    recorded: Callable[[str], ReferenceRecording], local_model: Callable[[str], LocalModel], case: ReferenceCase
) -> None:
    spoken = speak_plainly(local_model(case.variant), case)
    assert spoken.frames == codes_of(recorded("speech"), case)
    # With a smaller margin the rounding of another machine could change the draw.
    assert spoken.margin > NEAREST


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=[pytest.param("0b6-base", marks=pytest.mark.nightly), "1b7-base"]
)
async def engine(
    request: pytest.FixtureRequest, local_model: Callable[[str], LocalModel]
) -> AsyncIterator[TalkerEngine]:
    """Every task has the same weights at the same width, so one engine speaks all cases at the same time."""
    options = EngineOptions(slots=2 * len(CASES), max_frames=256, kv_cache_bytes=64 << 20)
    engine = TalkerEngine(local_model(request.param).checkpoint, options)
    await engine.start()
    yield engine
    await engine.close()


@pytest.mark.engine
@pytest.mark.asyncio(loop_scope="module")
async def test_engine_gives_the_codes_of_the_reference(
    engine: TalkerEngine, recorded: Callable[[str], ReferenceRecording], local_model: Callable[[str], LocalModel]
) -> None:
    cases = spoken_by(engine)
    made = await asyncio.gather(*(speak(engine, local_model(case.variant), case) for case in cases))
    for case, (codes, reason) in zip(cases, made, strict=True):
        expected = codes_of(recorded("speech"), case)
        assert codes == expected, case.name
        # The reference does not distinguish an end at the limit from one by the limit.
        assert (reason is FinishReason.END) == speak_plainly(local_model(case.variant), case).ended, case.name


@pytest.mark.engine
@pytest.mark.asyncio(loop_scope="module")
async def test_text_pushed_token_by_token_gives_the_same_codes(
    engine: TalkerEngine, recorded: Callable[[str], ReferenceRecording], local_model: Callable[[str], LocalModel]
) -> None:
    expected = {case: codes_of(recorded("speech"), case) for case in spoken_by(engine)}
    # The limit is checked after the text has ended, which may be later here.
    cases = [case for case, codes in expected.items() if len(codes) < frame_cap(case)]
    made = await asyncio.gather(*(speak(engine, local_model(case.variant), case, one_by_one=True) for case in cases))
    for case, (codes, _) in zip(cases, made, strict=True):
        assert codes == expected[case], case.name


@pytest.mark.engine
@pytest.mark.asyncio(loop_scope="module")
async def test_speech_does_not_end_before_its_text_by_default(
    engine: TalkerEngine, recorded: Callable[[str], ReferenceRecording], local_model: Callable[[str], LocalModel]
) -> None:
    cases = spoken_by(engine)
    masked = [speak_plainly(local_model(case.variant), case, early_end=False) for case in cases]
    made = await asyncio.gather(*(speak(engine, local_model(case.variant), case, early_end=False) for case in cases))
    longer = 0
    for case, spoken, (codes, _) in zip(cases, masked, made, strict=True):
        if spoken.margin > NEAREST:
            assert codes == spoken.frames, case.name
            longer += len(codes) > len(codes_of(recorded("speech"), case))
    assert longer


def spoken_by(engine: TalkerEngine) -> list[ReferenceCase]:
    return [case for case in CASES if VARIANTS[case.variant].hidden == engine.checkpoint.talker.hidden]


async def speak(
    engine: TalkerEngine,
    local_model: LocalModel,
    case: ReferenceCase,
    *,
    early_end: bool = True,
    one_by_one: bool = False,
) -> tuple[list[list[int]], FinishReason | None]:
    generation = engine.open()
    generation.prepare(
        local_model.prompt(case), Sampling(0.0, 0, 1.0, case.penalty, 0.0, 0, 1.0, 0, early_end), frame_cap(case)
    )
    generation.grant(1000)
    tokens = local_model.tokens(case.text)
    if one_by_one:
        for token in tokens:
            generation.feed([token])
            await asyncio.sleep(0)
    else:
        generation.feed(tokens)
    generation.close_text()
    async with asyncio.timeout(DEADLINE_S):
        codes = [frame.tolist() async for frame in generation]
    await generation.aclose()
    return codes, generation.finish_reason
