from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save
from voxgate.pipeline.cloning.voice_file import FORMAT, MOST_BYTES, from_bytes, to_bytes
from voxgate.pipeline.errors import BadVoice

from .voices import in_context_voice, parts, stored_voice


@pytest.mark.parametrize("stored", [stored_voice(), in_context_voice()], ids=["vector", "in-context"])
def test_what_was_written_is_read(stored: Any) -> None:
    assert parts(from_bytes(to_bytes(stored))) == parts(stored)


VECTOR = {"speaker_vector": np.ones(8, np.float32)}
METADATA = {"format": FORMAT, "name": "ada"}


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (b"", "no voice file"),
        (b"\x80\x04\x95\x00", "no voice file"),
        (to_bytes(stored_voice())[:-4], "no voice file"),
        (bytes(MOST_BYTES + 1), "at most"),
        (save(VECTOR), "format"),
        (save(VECTOR, METADATA | {"format": "voxgate-voice-9"}), "format"),
        (save({"other": np.ones(8)}, METADATA), "format"),
        (save(VECTOR, {"format": FORMAT}), "needs a name"),
        (save({"speaker_vector": np.full(8, np.nan)}, METADATA), "finite"),
        (save(VECTOR, METADATA | {"languages": "german"}), "languages"),
        (save(VECTOR, METADATA | {"languages": json.dumps(3)}), "languages"),
        (save(VECTOR, METADATA | {"reference_text": "Hello."}), "both its text and its codes"),
    ],
)
def test_what_is_no_voice_is_refused(file: bytes, words: str) -> None:
    with pytest.raises(BadVoice, match=words):
        from_bytes(file)


def test_no_damage_raises_anything_else() -> None:
    whole = to_bytes(in_context_voice())
    random = np.random.RandomState(0)
    for _ in range(500):
        damaged = bytearray(whole)
        for _ in range(random.randint(1, 6)):
            damaged[random.randint(len(damaged))] = random.randint(256)
        try:
            from_bytes(bytes(damaged))
        except BadVoice:
            continue
