"""The real engine against an independent loop: identical codes, however text arrives and whatever runs in parallel.

Floating-point rounding differs between the two, so the independent loop chooses utterances in which no draw is so
close to another outcome that rounding could change it.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from unittest.mock import patch

import pytest
import pytest_asyncio
import torch
from fakes.waiting import DEADLINE_S, until
from tokenizers import Tokenizer
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint
from voxgate.pipeline.interface import FinishReason, LeasedSlots
from voxgate.pipeline.ipc.engine_messages import Attach, Message, SubmitGeneration
from voxgate.pipeline.talker.engine import TalkerEngine
from voxgate.pipeline.talker.generation import Continuation, Generation, Sampling
from voxgate.pipeline.talker.prompt import custom_voice_prompt
from voxgate.pipeline.talker.prompt_pool import PrefilledPromptPool
from voxgate.pipeline.talker.remote_engine import RemoteTalkerEngine
from voxgate.pipeline.talker.slot_lease import TalkerSlotLease
from voxgate.pipeline.talker.vllm.config import EngineOptions, GpuOptions

from .plain_talker import Options, PlainTalker, Spoken, Voice

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

DEVICE = os.environ.get("VOXGATE_TEST_DEVICE", "cpu")
"""`scripts/test-gpu` sets cuda."""
VOXGATE_KERNELS = os.environ.get("VOXGATE_TEST_KERNELS") == "voxgate"
"""`scripts/test-gpu` runs both."""
SLOTS = 16
PREFILLED = 6
"""Fewer than utterances that begin at once, so some claim a prefilled prompt and others do not."""
NEAREST = 3e-6

SENTENCES = (
    "hello.",
    "yes, of course.",
    "how can i help you today?",
    "the train leaves at nine.",
    "it rained all night.",
    "please take a seat, and wait.",
    "i think it is a good idea.",
    "she plays the violin.",
)
GREEDY = Options(temperature=0.0, predictor_temperature=0.0, penalty=1.3)
VARIETIES = (
    Options(),
    GREEDY,
    Options(temperature=0.9, penalty=1.05, predictor_temperature=0.9),
    Options(temperature=1.0, top_k=0, top_p=0.8, predictor_top_k=20, predictor_top_p=0.9),
)


@dataclass(frozen=True)
class Case:
    tokens: list[int]
    seed: int
    options: Options
    cap: int
    expected: Spoken


@pytest.fixture(scope="module")
def cases(demo_folder: Path, tokenizer: Tokenizer) -> list[Case]:
    return find_cases(demo_folder, tokenizer, SLOTS)


def find_cases(demo_folder: Path, tokenizer: Tokenizer, count: int) -> list[Case]:
    """The first of sixteen utterances with the codes of the independent loop."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    talker, found = PlainTalker(demo_folder), []
    for number in range(count):
        tokens = tokenizer.encode(SENTENCES[number % len(SENTENCES)]).ids
        options, cap = VARIETIES[number % len(VARIETIES)], 14 + number
        for seed in range(number, 10_000, SLOTS):
            spoken = talker.speak(tokens, seed, options, Voice("heart"), cap)
            if spoken.margin > NEAREST:
                found.append(Case(tokens, seed, options, cap, spoken))
                break
    torch.set_num_threads(threads)
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(checkpoint: TalkerCheckpoint) -> AsyncIterator[TalkerEngine]:
    options = EngineOptions(
        SLOTS,
        64,
        kv_cache_bytes=64 << 20,
        device=DEVICE,
        dtype="float32",
        gpu=GpuOptions(voxgate_kernels=VOXGATE_KERNELS),
        attached_processes=1,
        prefilled_prompts=PREFILLED,
    )
    engine = TalkerEngine(checkpoint, options)
    await engine.start()
    yield engine
    await engine.close()


def begin(engine: TalkerEngine, case: Case, behind: Continuation | None = None, *, voice: str = "heart") -> Generation:
    """A generation of the case, or what follows of it behind another."""
    generation, prompt = engine.open(), custom_voice_prompt(engine.checkpoint, voice, "auto")
    generation.prepare(prompt, sampling(case), case.cap, behind)
    return generation


def sampling(case: Case) -> Sampling:
    o = case.options
    return Sampling(
        o.temperature,
        o.top_k,
        o.top_p,
        o.penalty,
        o.predictor_temperature,
        o.predictor_top_k,
        o.predictor_top_p,
        case.seed,
    )


async def at_once(generation: Generation, tokens: list[int], _: random.Random) -> None:
    generation.grant(1000)
    generation.feed(tokens)
    generation.close_text()


async def one_by_one(generation: Generation, tokens: list[int], _: random.Random) -> None:
    """Feeds each token in its own turn of the event loop."""
    generation.grant(1000)
    for token in tokens:
        generation.feed([token])
        await asyncio.sleep(0)
    generation.close_text()


async def starving(generation: Generation, tokens: list[int], rng: random.Random) -> None:
    """Feeds a token whenever the talker has read all others."""
    generation.grant(1000)
    fed = 0
    while fed < len(tokens):
        count = rng.randrange(1, 4)
        generation.feed(tokens[fed : fed + count])
        fed = min(fed + count, len(tokens))
        await made(generation, fed)
    generation.close_text()


async def short_of_credit(generation: Generation, tokens: list[int], rng: random.Random) -> None:
    """Feeds all text and grants credit for a few frames at a time."""
    generation.feed(tokens)
    generation.close_text()
    granted = 0
    while generation.finish_reason is None:
        granted += rng.randrange(1, 4)
        generation.grant(granted)
        await made(generation, granted)


async def late_end(generation: Generation, tokens: list[int], _: random.Random) -> None:
    """Closes the text only after frames were made for all of it."""
    generation.grant(1000)
    generation.feed(tokens)
    await made(generation, len(tokens))
    generation.close_text()


async def made(generation: Generation, frames: int) -> None:
    """Waits until the generation has made that many frames or has ended."""
    async with asyncio.timeout(DEADLINE_S):
        # Iterating would take the frames away from the test.
        while generation.frames < frames and generation.finish_reason is None:
            await asyncio.sleep(0.001)


async def collect(generation: Generation) -> list[list[int]]:
    async with asyncio.timeout(DEADLINE_S):
        return [frame.tolist() async for frame in generation]


async def speak(engine: TalkerEngine, case: Case, feed: Callable, salt: int) -> None:
    generation = begin(engine, case)
    rng = random.Random(case.seed * 31 + salt)
    feeding = asyncio.create_task(feed(generation, case.tokens, rng))
    frames = await collect(generation)
    await feeding
    await generation.aclose()
    assert frames == case.expected.frames
    assert (generation.finish_reason is FinishReason.END) == case.expected.ended


FEEDS = (at_once, one_by_one, starving, short_of_credit, late_end)


async def test_cases_cover_both_ways_to_end(cases: list[Case]) -> None:
    assert len(cases) == SLOTS
    assert {case.expected.ended for case in cases} == {True, False}


@pytest.mark.parametrize("feed", FEEDS)
async def test_one_at_a_time(engine: TalkerEngine, cases: list[Case], feed: Callable) -> None:
    for case in cases[:4]:
        await speak(engine, case, feed, salt=1)


@pytest.mark.parametrize("feed", FEEDS)
async def test_sixteen_at_once(engine: TalkerEngine, cases: list[Case], feed: Callable) -> None:
    await asyncio.gather(*(speak(engine, case, feed, salt=2) for case in cases))


async def test_every_feed_at_once_in_changing_batches(engine: TalkerEngine, cases: list[Case]) -> None:
    """Generations begin and end at random moments, so that no two steps have the same batch."""
    rng, room = random.Random(5), asyncio.Semaphore(SLOTS)

    async def one(number: int) -> None:
        async with room:
            await asyncio.sleep(rng.random() * 0.2)
            await speak(engine, rng.choice(cases), FEEDS[number % len(FEEDS)], salt=number)

    await asyncio.gather(*(one(number) for number in range(48)))


async def test_aborted_slot_does_not_affect_its_next_generation(engine: TalkerEngine, cases: list[Case]) -> None:
    async def abort_then_speak(number: int) -> None:
        victim = begin(engine, cases[(number + 5) % SLOTS])
        victim.grant(1000)
        victim.feed(cases[(number + 5) % SLOTS].tokens)
        victim.close_text()
        await made(victim, number % 5)
        await victim.aclose()
        await speak(engine, cases[number], at_once, salt=3)

    await asyncio.gather(*(abort_then_speak(number) for number in range(SLOTS)))
    assert engine.free_slots == SLOTS


async def test_held_generation_makes_no_step_and_loses_nothing(engine: TalkerEngine, cases: list[Case]) -> None:
    case = cases[0]
    held = begin(engine, case)
    held.grant(3)
    held.feed(case.tokens)
    held.close_text()
    await made(held, 3)
    # Others run on meanwhile, for many steps.
    await speak(engine, cases[1], at_once, salt=4)
    assert held.frames == 3
    held.grant(1000)
    assert await collect(held) == case.expected.frames
    await held.aclose()


async def test_another_seed_gives_other_codes(engine: TalkerEngine, cases: list[Case]) -> None:
    case = cases[0]
    other = begin(engine, replace(case, seed=case.seed + 1))
    await at_once(other, case.tokens, random.Random(0))
    assert await collect(other) != case.expected.frames
    await other.aclose()


async def test_speech_continues_from_prefilled_prompt(engine: TalkerEngine, cases: list[Case]) -> None:
    await speak(engine, cases[0], at_once, salt=5)
    pool = engine._prompt_pool
    assert pool is not None
    await until(lambda: pool.ready)
    ready = pool.ready
    generation = begin(engine, cases[1])
    await at_once(generation, cases[1].tokens, random.Random(0))
    assert pool.ready == ready - 1
    assert await collect(generation) == cases[1].expected.frames
    await generation.aclose()


class Attachment:
    """Another process's use of the engine, by its leases: what it sends is handled at once."""

    last_epoch = 0
    """Of all of them: a process never uses an epoch again."""

    def __init__(self, engine: TalkerEngine) -> None:
        self._engine = engine
        self._leases: dict[int, TalkerSlotLease] = {}
        self._places: dict[int, LeasedSlots] = {}
        self.claims: list[bool] = []
        self.losses: list[str] = []
        addresses = engine.reports_address(1), engine.wakeup_address
        attach = Attach(1, Attachment.last_epoch, engine.tables_path, astuple(engine.shape), *addresses, "", 0, 0)
        self.remote = RemoteTalkerEngine(attach, self._handle, self.losses.append)

    def _handle(self, message: Message) -> None:
        assert isinstance(message, SubmitGeneration)
        self.claims.append(message.claimed)
        self._leases[message.slot].submit(
            message.epoch,
            message.prompt_len,
            lambda steps: self.remote.end(message.epoch, steps),
            claimed=message.claimed,
        )

    def begin(self, case: Case, lease: TalkerSlotLease | None = None) -> tuple[Generation, TalkerSlotLease]:
        """A generation in a lease, or in a new one."""
        if lease is None:
            lease = self._engine.lease()
            self._leases[lease.slot] = lease
            self._places[lease.slot] = LeasedSlots(lease.slot, 0, lease.prompt_row)
        self.remote.reserve(lease.slot, self._places[lease.slot].take_prompt_row())
        generation = self.remote.open(lease.slot)
        Attachment.last_epoch = generation.epoch
        generation.prepare(custom_voice_prompt(self._engine.checkpoint, "heart", "auto"), sampling(case), case.cap)
        return generation, lease


async def filled_pool(engine: TalkerEngine, case: Case, salt: int) -> PrefilledPromptPool:
    """The pool, with a prompt computed in every row."""
    await speak(engine, case, at_once, salt)
    pool = engine._prompt_pool
    assert pool is not None
    await until(lambda: pool.ready == PREFILLED)
    return pool


async def test_other_process_continues_from_reserved_prompt(engine: TalkerEngine, cases: list[Case]) -> None:
    pool = await filled_pool(engine, cases[0], salt=6)
    attachment = Attachment(engine)
    for case in cases[1:4]:
        await until(lambda: pool.ready == PREFILLED)
        generation, lease = attachment.begin(case)
        assert pool.ready == PREFILLED - 1
        await at_once(generation, case.tokens, random.Random(0))
        assert await collect(generation) == case.expected.frames
        await generation.aclose()
        lease.release()
    assert attachment.claims == [True] * 3
    attachment.remote.lose("the test is over")


async def test_lease_that_begins_again_leaves_the_row_to_others(engine: TalkerEngine, cases: list[Case]) -> None:
    pool = await filled_pool(engine, cases[0], salt=9)
    attachment = Attachment(engine)
    generation, lease = attachment.begin(cases[1])
    await at_once(generation, cases[1].tokens, random.Random(0))
    assert await collect(generation) == cases[1].expected.frames
    await generation.aclose()
    await until(lambda: pool.ready == PREFILLED)
    other, other_lease = attachment.begin(cases[2])  # the row is reserved for it
    again, _ = attachment.begin(cases[3], lease)
    for speech, case in ((again, cases[3]), (other, cases[2])):
        await at_once(speech, case.tokens, random.Random(0))
    for speech, case in ((again, cases[3]), (other, cases[2])):
        assert await collect(speech) == case.expected.frames
        await speech.aclose()
    assert attachment.claims == [True, False, True]
    lease.release()
    other_lease.release()
    attachment.remote.lose("the test is over")


async def test_reserved_prompt_of_process_that_died_is_free_again(engine: TalkerEngine, cases: list[Case]) -> None:
    pool = await filled_pool(engine, cases[0], salt=7)
    attachment, free = Attachment(engine), engine.free_slots
    generation, lease = attachment.begin(cases[1])
    with patch.object(attachment.remote, "_send"):  # it dies between its claim and its message
        await at_once(generation, cases[1].tokens, random.Random(0))
    await until(lambda: generation.frames > 2)
    assert pool.ready < PREFILLED
    lease.release()
    await until(lambda: engine.free_slots == free)
    await until(lambda: pool.ready == PREFILLED)
    attachment.remote.lose("the test is over")
    await speak(engine, cases[2], at_once, salt=8)
