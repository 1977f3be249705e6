"""What a voice's first codes sound like, and how it says its words: `word_times.safetensors` of a checkpoint folder.

It belongs to the codebook that it was learnt with. Where the codebook is another one, it is left aside.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from ..codecs.neural.document import CodecFormatError
from ..codecs.neural.tensor_files import weight_files
from .checkpoint import CheckpointError, TalkerCheckpoint
from .ear import MOMENT_MS
from .pronunciation import PHONES_PER_LETTER, Array, Pronunciation
from .speech import FRAME_MS

log = logging.getLogger(__name__)

FILE = "word_times.safetensors"
MOMENTS = FRAME_MS // MOMENT_MS
"""In a frame."""
CODEBOOK = "decoder.quantizer.rvq_first.vq.layers.0._codebook.embedding_sum"


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
    path = checkpoint.folder / FILE
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
        for path in weight_files(codec_folder, CODEBOOK):
            with path.open("rb") as file:
                size = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(size))
                if (entry := header.get(CODEBOOK)) is not None:
                    begin, end = entry["data_offsets"]
                    file.seek(8 + size + begin)
                    return hashlib.sha256(file.read(end - begin)).hexdigest()
    except (OSError, ValueError, CodecFormatError) as error:
        raise CheckpointError(f"{codec_folder}: {error}") from error
    raise CheckpointError(f"{codec_folder} holds no {CODEBOOK}")


def _check(table: PhoneTable, path: Path, codebook: int) -> None:
    phones, said = len(table.usual), table.pronunciation
    places, letters, hidden = len(said.inputs), len(said.letters), len(said.hidden_bias)
    expected = {
        "likelier": (table.likelier, (codebook, MOMENTS, phones)),
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
