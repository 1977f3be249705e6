"""How words are said: which letters make which phones is found in the words themselves; a small network learns it."""

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
"""Letters to either side that say how one is said."""
SILENT = 0

PhoneIndices = tuple[int, ...]
"""The phones of a word, or of a letter in it, by number."""
Costs = Mapping[tuple[str, PhoneIndices], float]

_FIRST_COSTS = (3.0, 1.5, 6.0)
"""Of a letter that makes no phone, one, and two, while nothing is known."""
_UNSEEN_COST = 12.0
_ROUNDS = 5
_MOST = 100
"""Frequent words count as if they were heard so many times."""
_HIDDEN = 256
_EPOCHS = 20
_BATCH = 256
_RATE = 6e-3


def train_letters(heard: Counter[tuple[str, PhoneIndices]], phones: int, seed: int) -> dict[str, Tensor]:
    """The network of `voxgate.pipeline.alignment.phones` for words (letters, phones) as often as they were heard."""
    torch.manual_seed(seed)
    contexts, targets, weights = _examples(heard)
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


def _examples(heard: Counter[tuple[str, PhoneIndices]]) -> tuple[Tensor, Tensor, Tensor]:
    """For every letter of every word: the letters around it, what it makes, and how much that counts."""
    costs = _letter_costs(heard)
    contexts, targets, weights = [], [], []
    for (word, phones), count in heard.items():
        made = _divide(word, phones, costs)
        if made is None:
            continue
        beyond = [len(LETTERS)] * CONTEXT
        numbers = [*beyond, *map(LETTERS.index, word), *beyond]
        for at, said in enumerate(made):
            contexts.append(numbers[at : at + 2 * CONTEXT + 1])
            targets.append([*said, *[SILENT] * (PHONES_PER_LETTER - len(said))])
            weights.append(math.sqrt(min(count, _MOST)))
    return torch.tensor(contexts), torch.tensor(targets), torch.tensor(weights)


def _letter_costs(heard: Counter[tuple[str, PhoneIndices]]) -> Costs:
    """How surprising it is that a letter makes what it makes: guessed, then counted in the best divisions."""
    costs: Costs | None = None
    for _ in range(_ROUNDS):
        made: defaultdict[str, Counter[PhoneIndices]] = defaultdict(Counter)
        for (word, phones), count in heard.items():
            for letter, said in zip(word, _divide(word, phones, costs) or (), strict=False):
                made[letter][said] += min(count, 5)
        costs = {
            (letter, said): -math.log(count / (counts.total() + 1))
            for letter, counts in made.items()
            for said, count in counts.items()
        }
    assert costs is not None
    return costs


def _divide(word: str, phones: PhoneIndices, costs: Costs | None) -> Sequence[PhoneIndices] | None:
    """What each letter makes: the division that surprises least; None when there are more phones than could be."""
    best: dict[int, tuple[float, tuple[PhoneIndices, ...]]] = {0: (0.0, ())}
    for at, letter in enumerate(word):
        further: dict[int, tuple[float, tuple[PhoneIndices, ...]]] = {}
        left = len(word) - at - 1
        for done, (cost, made) in best.items():
            for count in range(PHONES_PER_LETTER + 1):
                end = done + count
                if end > len(phones) or len(phones) - end > PHONES_PER_LETTER * left:
                    continue
                said = phones[done:end]
                more = _FIRST_COSTS[count] if costs is None else costs.get((letter, said), _UNSEEN_COST)
                if end not in further or cost + more < further[end][0]:
                    further[end] = cost + more, (*made, said)
        best = further
    return best[len(phones)][1] if len(phones) in best else None


def _one_hot(contexts: Tensor) -> Tensor:
    return F.one_hot(contexts, len(LETTERS) + 1).float().flatten(1)
