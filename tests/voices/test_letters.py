from __future__ import annotations

import random
from collections import Counter

import numpy as np
from voxgate.pipeline.pronunciation import Pronunciation
from voxgate.voices.demo.train.letters import LETTERS, Said, train_letters

PHONES = 27
"""Silence, and one for each letter from a to z."""


def said(word: str) -> Said:
    """A spelling with rules: "x" is "k" and "s", "c" is "k", or "s" ahead of "e"; an "e" at the end is silent."""
    phones: list[int] = []
    for at, letter in enumerate(word):
        after = word[at + 1 : at + 2]
        if letter == "e" and not after:
            continue
        heard = {"x": "ks", "c": "s" if after == "e" else "k"}.get(letter, letter)
        phones += [1 + LETTERS.index(one) for one in heard]
    return tuple(phones)


def likeliest(learnt: Pronunciation, word: str) -> Said:
    heard = learnt.of(word)
    return tuple(heard.phones[heard.silent < 0.5].argmax(axis=1))


def lexicon(count: int, seed: int) -> Counter[tuple[str, Said]]:
    chance = random.Random(seed)
    words = ("".join(chance.choices("abcdexks", k=chance.randint(2, 7))) for _ in range(count))
    return Counter((word, said(word)) for word in words if said(word))


def test_rules_of_spelling_are_found_in_words_and_their_phones() -> None:
    tensors = {name: tensor.numpy() for name, tensor in train_letters(lexicon(3000, 1), PHONES, seed=1).items()}
    learnt = Pronunciation(
        LETTERS,
        tensors["letters.inputs"],
        tensors["letters.hidden_bias"],
        tensors["letters.outputs"],
        tensors["letters.output_bias"],
    )
    unseen = [word for word, _ in lexicon(300, 2) - lexicon(3000, 1)]
    assert len(unseen) > 100
    right = [likeliest(learnt, word) == said(word) for word in unseen]
    assert np.mean(right) > 0.95


def test_the_same_words_and_seed_make_the_same_network() -> None:
    one, two = (train_letters(lexicon(300, 1), PHONES, seed=1) for _ in range(2))
    assert all(bool((one[name] == two[name]).all()) for name in one)


def test_a_word_with_more_phones_than_its_letters_could_make_is_left_out() -> None:
    odd = Counter({("ab", (1, 2, 3, 4, 5)): 1})
    tensors = train_letters(lexicon(300, 1) + odd, PHONES, seed=1)
    assert all(bool(tensor.isfinite().all()) for tensor in tensors.values())
