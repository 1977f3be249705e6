"""Word times: counts of phones by code, the letter-to-phone network, and the teacher's true times."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from train.speech import synthesis as speech
from train.speech.check_word_times import errors_table, true_spans, word_time_errors
from train.speech.letters import LETTERS, PhoneIndices, train_letters
from train.speech.reading import PHONES, Reading, TimedPhone, TimedWord
from train.speech.synthesis import sentence
from train.speech.word_times import PhoneCounts, tables
from voxgate.pipeline.alignment.phones import Pronunciation

PAU, DH, AX, S, IY = (PHONES.index(name) for name in ("pau", "dh", "ax", "s", "iy"))

READING = Reading(
    np.repeat(np.array([0, 0.1, 0], np.float32), [4800, 10_080, 6720]),
    [
        TimedPhone("pau", 0.2),
        TimedPhone("dh", 0.24),
        TimedPhone("ax", 0.3),
        TimedPhone("s", 0.46),
        TimedPhone("iy", 0.62),
        TimedPhone("pau", 0.9),
    ],
    [TimedWord("the", 0.2, 0.3), TimedWord("sea", 0.3, 0.62)],
)
""""The sea": phones of 40, 60, 160 and 160 ms after 200 ms of silence."""
LEADING_SILENCE_S = 0.1
SILENT = 5
"""Hops of 20 ms before the first sound."""


@pytest.fixture(autouse=True)
def _leading_silence_of_whole_hops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speech, "LEADING_SILENCE_S", LEADING_SILENCE_S)


def counted() -> PhoneCounts:
    counts = PhoneCounts()
    read = sentence(READING)
    counts.add(READING, read, np.arange(read.frames, dtype=np.int16))
    return counts


def test_codes_are_counted_with_phones_of_their_frames() -> None:
    counts = counted()
    frames = sentence(READING).frames
    phones = counts.codes[:frames].argmax(axis=2).ravel().tolist()
    lead = SILENT
    spoken = [DH] * 2 + [AX] * 3 + [S] * 8 + [IY] * 8
    assert phones == [PAU] * lead + spoken + [PAU] * (4 * frames - lead - len(spoken))
    assert counts.codes.sum() == 4 * frames
    assert counts.phones[[PAU, DH, AX, S, IY]].tolist() == [2, 1, 1, 1, 1]


def test_words_are_counted_with_their_phones() -> None:
    assert counted().words == {("the", (DH, AX)): 1, ("sea", (S, IY)): 1}


def test_seen_code_suggests_its_phones_and_unseen_code_none() -> None:
    made = tables(counted())
    likelier, usual = made["likelier"], made["usual"]
    np.testing.assert_allclose((likelier * usual).sum(axis=2), 1)
    np.testing.assert_allclose(likelier[500], 1)
    frame, moment = divmod(SILENT + 2, 4)
    assert likelier[frame, moment].argmax() == AX
    assert likelier[frame, moment, AX] > 1 > likelier[frame, moment, S]
    assert made["moments"][[AX, S]].tolist() == [3, 8]


def test_true_spans_are_relative_to_sentence() -> None:
    np.testing.assert_allclose(
        true_spans(READING, sentence(READING)), np.array([[0, 100], [100, 420]]) + 1000 * LEADING_SILENCE_S, atol=1
    )


def test_errors_include_word_starts_and_ends() -> None:
    row = word_time_errors([[(0, 100), (100, 400)]], [[(0, 90), (90, 100)]])
    assert (row.words, row.most_ms, row.mean_ms, row.late_ms, row.near) == (2, 300, 80, 80, 0.75)


def test_table_has_every_figure() -> None:
    row = word_time_errors([[(0, 100), (100, 400)]], [[(0, 90), (90, 100)]])
    head, line = errors_table({"word times": row}).splitlines()
    assert line.split() == ["word", "times", "10", "80", "213", "291", "300", "80", "75.0%"]
    assert head.split()[3:] == ["median", "mean", "p90", "p99", "max", "late", "within", "100", "ms"]


LEXICON_PHONES = 27
"""Silence, and one for each letter from a to z."""


def spelled_phones(word: str) -> PhoneIndices:
    """Spelling rules: "x" is "k" and "s", "c" is "k", or "s" before "e"; a final "e" is silent."""
    phones: list[int] = []
    for at, letter in enumerate(word):
        after = word[at + 1 : at + 2]
        if letter == "e" and not after:
            continue
        sounds = {"x": "ks", "c": "s" if after == "e" else "k"}.get(letter, letter)
        phones += [1 + LETTERS.index(one) for one in sounds]
    return tuple(phones)


def likeliest(learnt: Pronunciation, word: str) -> PhoneIndices:
    predicted = learnt.predict(word)
    return tuple(predicted.phones[predicted.silent < 0.5].argmax(axis=1))


def lexicon(count: int, seed: int) -> Counter[tuple[str, PhoneIndices]]:
    chance = random.Random(seed)
    words = ("".join(chance.choices("abcdexks", k=chance.randint(2, 7))) for _ in range(count))
    return Counter((word, spelled_phones(word)) for word in words if spelled_phones(word))


def test_network_learns_spelling_rules() -> None:
    tensors = {name: tensor.numpy() for name, tensor in train_letters(lexicon(3000, 1), LEXICON_PHONES, seed=1).items()}
    learnt = Pronunciation(
        LETTERS,
        tensors["letters.inputs"],
        tensors["letters.hidden_bias"],
        tensors["letters.outputs"],
        tensors["letters.output_bias"],
    )
    unseen = [word for word, _ in lexicon(300, 2) - lexicon(3000, 1)]
    assert len(unseen) > 100
    right = [likeliest(learnt, word) == spelled_phones(word) for word in unseen]
    assert np.mean(right) > 0.95


def test_training_is_deterministic() -> None:
    one, two = (train_letters(lexicon(300, 1), LEXICON_PHONES, seed=1) for _ in range(2))
    assert all(bool((one[name] == two[name]).all()) for name in one)


def test_word_with_too_many_phones_is_skipped() -> None:
    odd = Counter({("ab", (1, 2, 3, 4, 5)): 1})
    tensors = train_letters(lexicon(300, 1) + odd, LEXICON_PHONES, seed=1)
    assert all(bool(tensor.isfinite().all()) for tensor in tensors.values())
