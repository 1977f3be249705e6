from __future__ import annotations

import random
from base64 import urlsafe_b64decode, urlsafe_b64encode

import numpy as np
import pytest
from voxgate.gateway.errors import CheckpointElsewhere
from voxgate.gateway.session.checkpoints.format import (
    MAX_PART_CHARACTERS,
    MAX_PART_FRAMES,
    Chain,
    Head,
    pack_head,
    pack_runs,
    read_key_id,
    unpack_head,
    unpack_runs,
)
from voxgate.pipeline.errors import CheckpointRefused
from voxgate.pipeline.interface import CodeRun, FinishReason

KEY = b"secret"
HEAD = Head(b"m" * 16, b"r" * 16, b"k" * 8, b"n" * 8)
CODEBOOK, GROUPS = 2048, 16


def codes(frames: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, CODEBOOK, (frames, GROUPS)).astype(np.int16)


def plain(runs: list[CodeRun]) -> list[tuple[int, int, list[list[int]], FinishReason | None]]:
    return [(run.generation, run.first, run.codes.tolist(), run.end) for run in runs]


def sealed(*runs: CodeRun) -> list[str]:
    chain = Chain(KEY)
    parts = [chain.seal(pack_head(HEAD), 100)]
    return parts + [chain.seal(part, 100) for part in pack_runs(runs)]


def opened(parts: list[str], key: bytes = KEY) -> list[CodeRun]:
    chain = Chain(key)
    kind, body, _ = chain.open(parts[0])
    assert unpack_head(kind, body) == HEAD
    runs: list[CodeRun] = []
    for part in parts[1:]:
        kind, body, expires_s = chain.open(part)
        assert expires_s == 100
        runs += unpack_runs(kind, body)
    return runs


def test_runs_come_out_as_they_went_in() -> None:
    empty = np.zeros((0, 0), np.int16)
    runs = [
        CodeRun(0, 3, codes(5), None),
        CodeRun(0, 8, empty, FinishReason.END),
        CodeRun(1, 0, codes(2), FinishReason.LENGTH),
    ]
    assert plain(opened(sealed(*runs))) == [
        (run.generation, run.first, run.codes.tolist() if len(run.codes) else [], run.end) for run in runs
    ]


@pytest.mark.parametrize("largest", [0, 1, 255, 2047, 32_767])
def test_codes_take_as_few_bits_as_the_largest(largest: int) -> None:
    run = CodeRun(0, 0, np.full((3, GROUPS), largest, np.int16))
    parts = sealed(run)
    assert plain(opened(parts)) == plain([run])
    assert len(parts[1]) <= 4 * (6 + 10 + 16 + 3 * GROUPS * max(1, largest.bit_length()) / 8 + 3) / 3


def test_a_second_of_speech_takes_less_than_half_a_kilobyte() -> None:
    assert len(sealed(CodeRun(0, 0, codes(13)))[1]) < 500


def test_long_runs_are_divided() -> None:
    run = CodeRun(2, 7, codes(3 * MAX_PART_FRAMES + 5), FinishReason.END)
    parts = sealed(CodeRun(1, 0, codes(10, 2), FinishReason.END), run)
    assert max(map(len, parts)) <= MAX_PART_CHARACTERS
    runs = opened(parts)
    assert np.array_equal(np.concatenate([each.codes for each in runs[1:]]), run.codes)
    assert [each.end for each in runs[1:-1]] == [None] * (len(runs) - 2)
    assert runs[-1].end is FinishReason.END
    firsts = [each.first for each in runs[1:]]
    assert firsts == [7, *np.cumsum([len(each.codes) for each in runs[1:-1]]) + 7]


def test_head_names_its_key_before_it_is_checked() -> None:
    assert read_key_id(sealed()[0]) == HEAD.key_id
    assert read_key_id("x") is None
    assert read_key_id("é") is None


def test_every_flipped_bit_and_every_cut_is_refused() -> None:
    parts = sealed(CodeRun(0, 0, codes(4)))
    chance = random.Random(1)
    for number, part in enumerate(parts):
        content = urlsafe_b64decode(part + "=" * (-len(part) % 4))
        for bit in range(8 * len(content)):
            damaged = bytearray(content)
            damaged[bit // 8] ^= 1 << bit % 8
            forged = [*parts[:number], urlsafe_b64encode(damaged).decode().rstrip("="), *parts[number + 1 :]]
            with pytest.raises(CheckpointRefused):
                opened(forged)
        for _ in range(50):
            cut = part[: chance.randrange(len(part))]
            with pytest.raises(CheckpointRefused):
                opened([*parts[:number], cut])


def test_parts_of_another_key_order_or_checkpoint_are_refused() -> None:
    one, other = sealed(CodeRun(0, 0, codes(70))), sealed(CodeRun(0, 0, codes(70, 2)))
    with pytest.raises(CheckpointRefused, match="authentic and follow"):
        opened(one, b"another key")
    for wrong in ([one[0], one[2]], [one[0], other[2]], [*one, one[1]], [one[0], one[2], one[1]]):
        with pytest.raises(CheckpointRefused, match="authentic and follow"):
            opened(wrong)


def test_what_a_refused_part_would_have_followed_can_still_follow() -> None:
    parts, chain = sealed(CodeRun(0, 0, codes(4))), Chain(KEY)
    chain.open(parts[0])
    with pytest.raises(CheckpointRefused):
        chain.open(parts[0])
    chain.open(parts[1])


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ("A" * (MAX_PART_CHARACTERS + 1), f"at most {MAX_PART_CHARACTERS} characters, got {MAX_PART_CHARACTERS + 1}"),
        ("é", "base64url"),
        ("A", "base64url"),
        ("", "at least 22 bytes, got 0"),
    ],
)
def test_malformed_parts_are_refused(part: str, reason: str) -> None:
    with pytest.raises(CheckpointRefused, match=reason):
        Chain(KEY).open(part)


def test_another_version_is_for_another_replica() -> None:
    content = urlsafe_b64decode(sealed()[0] + "==")
    with pytest.raises(CheckpointElsewhere, match="must be 1, got 9"):
        Chain(KEY).open(urlsafe_b64encode(b"\x09" + content[1:]).decode().rstrip("="))


@pytest.mark.parametrize("seed", range(300))
def test_bodies_of_random_bytes_are_read_or_refused(seed: int) -> None:
    """What is authentic may still be nonsense where clients need no key: it takes no more memory than its size says."""
    chance = random.Random(seed)
    body = bytes(chance.choice((0, 1, 255, chance.randrange(256))) for _ in range(chance.randrange(120)))
    try:
        runs = unpack_runs(2, body)
    except CheckpointRefused:
        return
    assert sum(len(run.codes) for run in runs) <= MAX_PART_FRAMES
    assert sum(run.codes.size for run in runs) <= 8 * len(body) + MAX_PART_FRAMES * 256


def test_head_and_codes_have_their_places() -> None:
    with pytest.raises(CheckpointRefused, match="must be its head"):
        unpack_head(2, b"")
    with pytest.raises(CheckpointRefused, match="must be codes"):
        unpack_runs(1, b"")
