"""Acoustic model for a voice with a phone table: which phones each codebook 0 code suggests, and how words are said.

A checkpoint folder may hold `word_times.safetensors`, trained with the voice (`recipes/voice`). It has two parts:

- For each code and each hop of its frame, the likelihood of each phone relative to its frequency in all speech. Such
  scaled likelihoods serve as emission probabilities of HMM states (Bourlard and Morgan, "Connectionist speech
  recognition", 1994).
- A letter-to-phone network: one hidden layer over a window of letters, as NETtalk (Sejnowski and Rosenberg, 1987).

The table fits only the codebook that it was trained with, which it names by a digest. With any other codebook, words
are aligned by coarse phone classes instead.
"""

from __future__ import annotations

import hashlib
import logging
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from voxgate.codecs.neural.checkpoint import CodecFormatError, weight_files
from voxgate.codecs.pcm import FRAME_MS, Pcm

from ..checkpoint.checkpoint import TalkerCheckpoint
from ..checkpoint.safetensors_header import read_entry
from ..errors import CheckpointError
from ..text.english import MAGNITUDES, MONEY, spoken_english
from .scorer import HOP_MS, Codes, CommitPolicy, Costs, Features, StateSequence

log = logging.getLogger(__name__)

Array = NDArray[np.float32]

PHONE_TABLE_FILE = "word_times.safetensors"
HOPS_PER_FRAME = FRAME_MS // HOP_MS
PHONES_PER_LETTER = 2
"""Places for phones of each letter: the "x" of "fox" makes two."""
FIRST_CODEBOOK_TENSOR = "decoder.quantizer.rvq_first.vq.layers.0._codebook.embedding_sum"

_OMITTED_SILENT_PROBABILITY = 0.9
"""Places more likely than this to make no phone are left out."""


@dataclass(frozen=True, slots=True)
class PhoneSequence:
    """Distributions over phones at consecutive places of a word."""

    phones: Array
    """Probability of each phone at each place, given that there is one: [places, phones]."""
    silent: Array
    """Probability of no phone at each place: [places]."""


@dataclass(frozen=True, slots=True)
class Pronunciation:
    """A letter-to-phone network with one hidden layer, over each letter and n letters to either side of it.

    Phone 0 is silence, which stands for a silent letter.
    """

    letters: str
    """The letters it knows."""
    inputs: Array
    """[2n + 1, letters + 1, hidden]: input of each letter at each place; the last letter stands for beyond the word."""
    hidden_bias: Array
    """[hidden]."""
    outputs: Array
    """[hidden, 2 * phones]."""
    output_bias: Array
    """[2 * phones]."""

    @property
    def phones(self) -> int:
        """Number of phones, silence included."""
        return len(self.output_bias) // PHONES_PER_LETTER

    def predict(self, text: str) -> PhoneSequence:
        """The phones of the text's words in order, without places that are almost surely silent."""
        words = re.findall(f"[{re.escape(self.letters)}]+", text.lower())
        probabilities = np.concatenate([np.zeros((0, self.phones), np.float32), *map(self._predict_word, words)])
        silent = probabilities[:, 0].copy()
        probabilities[:, 0] = 0
        kept = silent < _OMITTED_SILENT_PROBABILITY
        return PhoneSequence(probabilities[kept] / probabilities[kept].sum(axis=1, keepdims=True), silent[kept])

    def _predict_word(self, word: str) -> Array:
        """Probability of each phone at each place, two places per letter: [2 * letters, phones]."""
        width = len(self.inputs)
        beyond = [len(self.letters)] * (width // 2)
        letters = np.array([*beyond, *map(self.letters.index, word), *beyond])
        windows = np.lib.stride_tricks.sliding_window_view(letters, width)
        hidden = self.inputs[np.arange(width), windows].sum(axis=1) + self.hidden_bias
        scores = np.maximum(hidden, 0) @ self.outputs + self.output_bias
        return _softmax(scores.reshape(-1, self.phones))


def _softmax(scores: NDArray[Any]) -> Array:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: Array = powers / powers.sum(axis=1, keepdims=True)
    return shares


@dataclass(frozen=True, slots=True)
class PhoneTable:
    """Acoustics and pronunciation of one voice, over phones numbered from 0, which is silence."""

    likelihood_ratios: Array
    """[codes, 4, phones]: probability of each phone in each hop of a frame with that code, over its `prior`."""
    prior: Array
    """[phones]: share of each phone in all speech."""
    mean_hops: Array
    """[phones]: mean duration."""
    pronunciation: Pronunciation
    phones: tuple[str, ...] = ()
    """Names of the phones; empty where the file does not tell them."""


def load_phone_table(checkpoint: TalkerCheckpoint) -> PhoneTable | None:
    """The checkpoint's table; None if it has none, or (logged) one for another codebook.

    Raises CheckpointError when the file is damaged.
    """
    path = checkpoint.folder / PHONE_TABLE_FILE
    if not path.exists():
        return None
    try:
        with safe_open(str(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name).astype(np.float32) for name in file.keys()}  # noqa: SIM118 - no mapping
        table = PhoneTable(
            likelihood_ratios=tensors["likelier"],
            prior=tensors["usual"],
            mean_hops=tensors["moments"],
            pronunciation=Pronunciation(
                letters=metadata["letters"],
                inputs=tensors["letters.inputs"],
                hidden_bias=tensors["letters.hidden_bias"],
                outputs=tensors["letters.outputs"],
                output_bias=tensors["letters.output_bias"],
            ),
            phones=tuple(metadata.get("phones", "").split()),
        )
        digest = metadata["codebook"]
    except (OSError, SafetensorError, KeyError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    _check_shapes(table, path, checkpoint.codebook)
    if digest != codebook_digest(checkpoint.codec_folder):
        log.warning("%s was trained with another codec: aligning words by coarse phone classes", path)
        return None
    return table


def codebook_digest(codec_folder: Path) -> str:
    """SHA-256 of the codec's first codebook, as stored. Raises CheckpointError if there is none."""
    try:
        for path in weight_files(codec_folder, FIRST_CODEBOOK_TENSOR):
            if (entry := read_entry(path, FIRST_CODEBOOK_TENSOR)) is not None:
                return hashlib.sha256(entry.data).hexdigest()
    except (OSError, ValueError, CodecFormatError) as error:
        raise CheckpointError(f"{codec_folder}: {error}") from error
    raise CheckpointError(f"{codec_folder} holds no {FIRST_CODEBOOK_TENSOR}")


def _check_shapes(table: PhoneTable, path: Path, codebook: int) -> None:
    phones, network = len(table.prior), table.pronunciation
    places, letters, hidden = len(network.inputs), len(network.letters), len(network.hidden_bias)
    expected = {
        "likelier": (table.likelihood_ratios, (codebook, HOPS_PER_FRAME, phones)),
        "usual": (table.prior, (phones,)),
        "moments": (table.mean_hops, (phones,)),
        "letters.inputs": (network.inputs, (places, letters + 1, hidden)),
        "letters.hidden_bias": (network.hidden_bias, (hidden,)),
        "letters.outputs": (network.outputs, (hidden, PHONES_PER_LETTER * phones)),
        "letters.output_bias": (network.output_bias, (PHONES_PER_LETTER * phones,)),
    }
    for name, (tensor, shape) in expected.items():
        if tensor.shape != shape:
            raise CheckpointError(f"{path}: {name} has shape {list(tensor.shape)}, expected {list(shape)}")
        if not np.isfinite(tensor).all():
            raise CheckpointError(f"{path}: {name} holds values that are not finite")
    if len(table.phones) not in (0, phones):
        raise CheckpointError(f"{path} must name its {phones} phones, got {len(table.phones)} names")
    if not places % 2:
        raise CheckpointError(f"{path}: letters.inputs must have an odd number of places, got {places}")


EMISSION_WEIGHT = 0.5
"""Weight of each hop's log likelihood: neighbouring hops repeat most of the same evidence."""
SLIP_PROBABILITY = 1e-4
"""Probability of a code that says nothing about the spoken phone; bounds the cost of a hop."""
MAX_SKIP_COST = 4.0
"""Largest cost of a phone that was not said."""
MIN_SILENT_PROBABILITY = 1e-9
"""Keeps the logarithm finite."""
NO_PAUSE_COST = 6.0
"""Cost of a punctuation mark without a pause."""
MIN_PHONE_HOPS = 1.2


class PhoneScorer:
    """The `AcousticScorer` for voices with a phone table, for English in its spoken form.

    Each state is one phone, whose duration has a geometric distribution. Serves any number of utterances.
    """

    beam_states = 250
    commit_policy = CommitPolicy(cost_margin=20.0, min_hops=3, max_hops=100)

    def __init__(self, table: PhoneTable) -> None:
        self._table = table
        silence = np.zeros((1, len(table.prior)), np.float32)
        silence[0, 0] = 1
        zero = np.zeros(1)
        self._pause = StateSequence(silence, zero, zero, np.full(1, NO_PAUSE_COST), zero)
        self._unpunctuated_pause = replace(self._pause, skip_cost=zero)

    def extract_features(self, pcm: Pcm, codes: Codes) -> Features:  # noqa: ARG002 - this scorer uses the codes alone
        """The codes themselves, int16 [frames]."""
        return codes

    def costs(self, features: Features, emissions: NDArray[Any]) -> Costs:
        """Cost of each state in each of the four hops of each frame; `emissions`: [states, phones]."""
        ratios = self._table.likelihood_ratios[features].reshape(-1, len(self._table.prior))
        costs: Costs = -EMISSION_WEIGHT * np.log((1 - SLIP_PROBABILITY) * (ratios @ emissions.T) + SLIP_PROBABILITY)
        return costs

    def word_states(self, text: str, before: str, pace: float) -> StateSequence:
        """A state for each phone of the word as it is spoken; one of any phone for a word without letters."""
        predicted = self._table.pronunciation.predict(spoken_word(text, before))
        phones, silent = predicted.phones, predicted.silent
        if not len(phones):
            phones, silent = self._table.prior[None], np.zeros(1, np.float32)
        hops = np.maximum(phones @ self._table.mean_hops * pace, MIN_PHONE_HOPS).astype(np.float64)
        skip_cost = np.minimum(-np.log(np.maximum(silent, MIN_SILENT_PROBABILITY)), MAX_SKIP_COST)
        return StateSequence(
            phones,
            self_loop_cost=-np.log(1 - 1 / hops),
            exit_cost=np.log(hops),
            skip_cost=skip_cost.astype(np.float64),
            expected_hops=hops,
        )

    def pause_states(self, *, punctuated: bool) -> StateSequence:
        """One state of silence of any duration."""
        return self._pause if punctuated else self._unpunctuated_pause


def spoken_word(word: str, before: str) -> str:
    """A written word after the word `before` in letters: "kg" after "8" is "kilograms".

    In amounts of money the unit follows the magnitude: of "$3 million", "million" is "million dollars".
    """
    words = spoken_english(word, after_number=before[-1:].isdigit())
    if MONEY.fullmatch(before) and word.strip(".,;:!?").lower() in MAGNITUDES:
        return f"{words} {spoken_english(before).split()[-1]}"
    return words
