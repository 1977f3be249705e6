"""Trains the letter-to-phone network of the word times on words with their phones.

The alignment of letters with phones is found by Viterbi training (Jiampojamarn et al., "Applying many-to-many
alignments and hidden Markov models to letter-to-phoneme conversion", 2007): each letter makes no, one or two phones.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LETTERS = "abcdefghijklmnopqrstuvwxyz'"
PHONES_PER_LETTER = 2
CONTEXT = 3
"""Letters to either side that the pronunciation of a letter depends on."""
SILENT = 0

PhoneIndices = tuple[int, ...]
"""Numbers of the phones of a word or a letter."""
Costs = Mapping[tuple[str, PhoneIndices], float]
"""Negative log probability of the phones of a letter."""

_INITIAL_COSTS = (3.0, 1.5, 6.0)
"""Initial costs of no phone, one, and two per letter."""
_UNSEEN_COST = 12.0
_ROUNDS = 5
_MAX_COUNT = 100
"""Limit of the count of frequent words."""
_HIDDEN = 256
_EPOCHS = 20
_BATCH = 256
_RATE = 6e-3


def train_letters(words: Counter[tuple[str, PhoneIndices]], phones: int, seed: int) -> dict[str, Tensor]:
    """Train the network of `voxgate.pipeline.alignment.phones.Pronunciation` on counted words (letters, phones)."""
    torch.manual_seed(seed)
    contexts, targets, weights = _examples(words)
    network = nn.Sequential(
        nn.Linear((2 * CONTEXT + 1) * (len(LETTERS) + 1), _HIDDEN),
        nn.ReLU(),
        nn.Linear(_HIDDEN, PHONES_PER_LETTER * phones),
    )
    optimizer = torch.optim.AdamW(network.parameters(), _RATE)
    batches = _EPOCHS * (len(contexts) // _BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, total_steps=batches + 1)
    for _ in range(_EPOCHS):
        for rows in torch.randperm(len(contexts))[: len(contexts) // _BATCH * _BATCH].view(-1, _BATCH):
            scores = network(_one_hot(contexts[rows])).view(-1, phones)
            losses = F.cross_entropy(scores, targets[rows].flatten(), reduction="none")
            loss = (losses.view(-1, PHONES_PER_LETTER).sum(1) * weights[rows]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    inputs, hidden_bias, outputs, output_bias = (part.detach() for part in network.parameters())
    return {
        "letters.inputs": inputs.t().reshape(2 * CONTEXT + 1, len(LETTERS) + 1, _HIDDEN).contiguous(),
        "letters.hidden_bias": hidden_bias,
        "letters.outputs": outputs.t().contiguous(),
        "letters.output_bias": output_bias,
    }


def _examples(words: Counter[tuple[str, PhoneIndices]]) -> tuple[Tensor, Tensor, Tensor]:
    """For every letter of every word: its context, its phones, and its weight in the loss."""
    costs = _letter_costs(words)
    contexts, targets, weights = [], [], []
    for (word, phones), count in words.items():
        letters_phones = _align(word, phones, costs)
        if letters_phones is None:
            continue
        beyond = [len(LETTERS)] * CONTEXT
        numbers = [*beyond, *map(LETTERS.index, word), *beyond]
        for at, letter_phones in enumerate(letters_phones):
            contexts.append(numbers[at : at + 2 * CONTEXT + 1])
            targets.append([*letter_phones, *[SILENT] * (PHONES_PER_LETTER - len(letter_phones))])
            weights.append(math.sqrt(min(count, _MAX_COUNT)))
    return torch.tensor(contexts), torch.tensor(targets), torch.tensor(weights)


def _letter_costs(words: Counter[tuple[str, PhoneIndices]]) -> Costs:
    """Cost of the phones of each letter, re-estimated from the best alignments."""
    costs: Costs | None = None
    for _ in range(_ROUNDS):
        letters_phones: defaultdict[str, Counter[PhoneIndices]] = defaultdict(Counter)
        for (word, phones), count in words.items():
            for letter, letter_phones in zip(word, _align(word, phones, costs) or (), strict=False):
                letters_phones[letter][letter_phones] += min(count, 5)
        costs = {
            (letter, letter_phones): -math.log(count / (counts.total() + 1))
            for letter, counts in letters_phones.items()
            for letter_phones, count in counts.items()
        }
    assert costs is not None
    return costs


def _align(word: str, phones: PhoneIndices, costs: Costs | None) -> Sequence[PhoneIndices] | None:
    """Phones of each letter in the cheapest alignment; None if there are too many phones."""
    best: dict[int, tuple[float, tuple[PhoneIndices, ...]]] = {0: (0.0, ())}
    for at, letter in enumerate(word):
        extended: dict[int, tuple[float, tuple[PhoneIndices, ...]]] = {}
        left = len(word) - at - 1
        for position, (cost, letters_phones) in best.items():
            for count in range(PHONES_PER_LETTER + 1):
                end = position + count
                if end > len(phones) or len(phones) - end > PHONES_PER_LETTER * left:
                    continue
                letter_phones = phones[position:end]
                step_cost = _INITIAL_COSTS[count] if costs is None else costs.get((letter, letter_phones), _UNSEEN_COST)
                if end not in extended or cost + step_cost < extended[end][0]:
                    extended[end] = cost + step_cost, (*letters_phones, letter_phones)
        best = extended
    return best[len(phones)][1] if len(phones) in best else None


def _one_hot(contexts: Tensor) -> Tensor:
    return F.one_hot(contexts, len(LETTERS) + 1).float().flatten(1)
