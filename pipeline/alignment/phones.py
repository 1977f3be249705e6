"""How a word is said, from its letters: a small network that was learnt with a voice."""
# TODO-DOC What a voice's first codes sound like, and how it says its words: `word_times.safetensors` of a checkpoint
# TODO-DOC folder. It belongs to the codebook that it was learnt with. Where the codebook is another one, it is left
# TODO-DOC aside.
# TODO-DOC Hears a voice whose first codes are known (`phone_table.py`): words by their phones.

from __future__ import annotations

import hashlib
import json
import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from voxgate.codecs.neural.checkpoint import CodecFormatError, weight_files
from voxgate.codecs.pcm import FRAME_MS, Pcm

from ..checkpoint import TalkerCheckpoint
from ..errors import CheckpointError
from ..text.english import MAGNITUDES, MONEY, spoken_english
from .scorer import HOP_MS, Codes, CommitPolicy, Costs, Features, StateSequence

Array = NDArray[np.float32]

PHONES_PER_LETTER = 2
"""The "x" of "fox" is two."""


_SILENT = 0.9
"""A place that is surer than this to make no phone is left out."""


@dataclass(frozen=True, slots=True)
class PhoneSequence:
    """Places where a phone is heard: how likely each phone is there, [places, phones], and that there is none after
    all, [places].
    """

    phones: Array
    silent: Array


@dataclass(frozen=True, slots=True)
class Pronunciation:
    """A network with one hidden layer, over each letter and as many to either side of it.

    `inputs`: [2n + 1, letters + 1, hidden], what each letter adds at each place, the last for beyond the word;
    `outputs`: [hidden, 2 * phones]. The first phone is silence: with it a letter says that it is silent.
    """

    letters: str
    inputs: Array
    hidden_bias: Array
    outputs: Array
    output_bias: Array

    @property
    def phones(self) -> int:
        return len(self.output_bias) // PHONES_PER_LETTER

    def of(self, text: str) -> PhoneSequence:
        """What the letters of the text make, in order; places that are hardly ever heard are left out."""
        words = re.findall(f"[{re.escape(self.letters)}]+", text.lower())
        likely = np.concatenate([np.zeros((0, self.phones), np.float32), *map(self._word, words)])
        silent = likely[:, 0].copy()
        likely[:, 0] = 0
        heard = silent < _SILENT
        return PhoneSequence(likely[heard] / likely[heard].sum(axis=1, keepdims=True), silent[heard])

    def _word(self, word: str) -> Array:
        """Of each letter in turn its places: how likely each phone is there, the first standing for none."""
        width = len(self.inputs)
        beyond = [len(self.letters)] * (width // 2)
        letters = np.array([*beyond, *map(self.letters.index, word), *beyond])
        around = np.lib.stride_tricks.sliding_window_view(letters, width)
        hidden = self.inputs[np.arange(width), around].sum(axis=1) + self.hidden_bias
        said = np.maximum(hidden, 0) @ self.outputs + self.output_bias
        return _softmax(said.reshape(-1, self.phones))


def _softmax(scores: NDArray[Any]) -> Array:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: Array = powers / powers.sum(axis=1, keepdims=True)
    return shares


log = logging.getLogger(__name__)

PHONE_TABLE_FILE = "word_times.safetensors"
HOPS_PER_FRAME = FRAME_MS // HOP_MS
"""In a frame."""
FIRST_CODEBOOK_TENSOR = "decoder.quantizer.rvq_first.vq.layers.0._codebook.embedding_sum"


@dataclass(frozen=True, slots=True)
class PhoneTable:
    """What is known of a voice's phones, numbered from 0, which is silence."""

    likelier: Array
    """[codes, 4, phones]: how much likelier than usual each phone is in each 20 ms of a frame with that code."""
    usual: Array
    """[phones]: the share of each in all speech."""
    moments: Array
    """[phones]: how many times 20 ms each lasts."""
    pronunciation: Pronunciation


def load_phone_table(checkpoint: TalkerCheckpoint) -> PhoneTable | None:
    """The checkpoint's table; None where it has none, or one that was learnt with other codes (logged).

    Raises CheckpointError when the file is damaged.
    """
    path = checkpoint.folder / PHONE_TABLE_FILE
    if not path.exists():
        return None
    try:
        with safe_open(str(path), framework="numpy") as file:
            about = file.metadata() or {}
            tensors = {name: file.get_tensor(name).astype(np.float32) for name in file.keys()}  # noqa: SIM118 - no mapping
        table = PhoneTable(
            likelier=tensors["likelier"],
            usual=tensors["usual"],
            moments=tensors["moments"],
            pronunciation=Pronunciation(
                letters=about["letters"],
                inputs=tensors["letters.inputs"],
                hidden_bias=tensors["letters.hidden_bias"],
                outputs=tensors["letters.outputs"],
                output_bias=tensors["letters.output_bias"],
            ),
        )
        learnt_with = about["codebook"]
    except (OSError, SafetensorError, KeyError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    _check(table, path, checkpoint.codebook)
    if learnt_with != codebook_digest(checkpoint.codec_folder):
        log.warning("%s was made for another codec; word times follow the sound instead", path)
        return None
    return table


def codebook_digest(codec_folder: Path) -> str:
    """SHA-256 of the codec's first codebook, as stored. Raises CheckpointError where it is not to be found."""
    try:
        for path in weight_files(codec_folder, FIRST_CODEBOOK_TENSOR):
            with path.open("rb") as file:
                size = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(size))
                if (entry := header.get(FIRST_CODEBOOK_TENSOR)) is not None:
                    begin, end = entry["data_offsets"]
                    file.seek(8 + size + begin)
                    return hashlib.sha256(file.read(end - begin)).hexdigest()
    except (OSError, ValueError, CodecFormatError) as error:
        raise CheckpointError(f"{codec_folder}: {error}") from error
    raise CheckpointError(f"{codec_folder} holds no {FIRST_CODEBOOK_TENSOR}")


def _check(table: PhoneTable, path: Path, codebook: int) -> None:
    phones, said = len(table.usual), table.pronunciation
    places, letters, hidden = len(said.inputs), len(said.letters), len(said.hidden_bias)
    expected = {
        "likelier": (table.likelier, (codebook, HOPS_PER_FRAME, phones)),
        "usual": (table.usual, (phones,)),
        "moments": (table.moments, (phones,)),
        "letters.inputs": (said.inputs, (places, letters + 1, hidden)),
        "letters.hidden_bias": (said.hidden_bias, (hidden,)),
        "letters.outputs": (said.outputs, (hidden, PHONES_PER_LETTER * phones)),
        "letters.output_bias": (said.output_bias, (PHONES_PER_LETTER * phones,)),
    }
    for name, (tensor, shape) in expected.items():
        if tensor.shape != shape:
            raise CheckpointError(f"{path}: {name} is {list(tensor.shape)} instead of {list(shape)}")
        if not np.isfinite(tensor).all():
            raise CheckpointError(f"{path}: {name} holds what is no number")
    if not places % 2:
        raise CheckpointError(f"{path}: letters.inputs has {places} places, which has no middle")


WEIGHT = 0.5
"""Of what a moment tells: it is much like its neighbours, which tell the same again."""
SLIP = 1e-4
"""How often a moment says nothing about the phone that is spoken."""
MAX_SKIP_COST = 4.0
"""Of a phone that was not said, at most."""
LEAST_SILENT = 1e-9
NO_PAUSE_COST = 6.0
"""Of speaking on over a punctuation mark."""
MIN_PHONE_HOPS = 1.2


class PhoneScorer:
    """The `AcousticScorer` for voices with a table, in English as `text/spoken.py` speaks it. Serves any number of utterances."""

    reach_steps = 250
    commit_policy = CommitPolicy(cost_margin=20.0, min_hops=3, max_hops=100)

    def __init__(self, table: PhoneTable) -> None:
        self._table = table

    def hear(self, pcm: Pcm, codes: Codes) -> Features:  # noqa: ARG002 - an ear may listen to either
        return codes

    def costs(self, heard: Features, sounds: NDArray[Any]) -> Costs:
        likelier = self._table.likelier[heard].reshape(-1, len(self._table.usual))
        costs: Costs = -WEIGHT * np.log((1 - SLIP) * (likelier @ sounds.T) + SLIP)
        return costs

    def word(self, text: str, before: str, pace: float) -> StateSequence:
        heard = self._table.pronunciation.of(spoken(text, before))
        phones, silent = heard.phones, heard.silent
        if not len(phones):
            phones, silent = self._table.usual[None], np.zeros(1, np.float32)
        moments = np.maximum(phones @ self._table.moments * pace, MIN_PHONE_HOPS).astype(np.float64)
        return StateSequence(
            phones,
            stay=-np.log(1 - 1 / moments),
            leave=np.log(moments),
            skip_cost=np.minimum(-np.log(np.maximum(silent, LEAST_SILENT)), MAX_SKIP_COST).astype(np.float64),
            moments=moments,
        )

    def pause(self, *, asked: bool) -> StateSequence:
        silence = np.zeros((1, len(self._table.usual)), np.float32)
        silence[0, 0] = 1
        nothing = np.zeros(1)
        return StateSequence(silence, nothing, nothing, np.full(1, NO_PAUSE_COST if asked else 0.0), nothing)


def spoken(word: str, before: str) -> str:
    """A written word in letters: "8 kg" is "eight", "kilograms", and "$3 million" is "three", "million dollars"."""
    words = spoken_english(word, after_number=before[-1:].isdigit())
    if MONEY.fullmatch(before) and word.strip(".,;:!?").lower() in MAGNITUDES:
        return f"{words} {spoken_english(before).split()[-1]}"
    return words
