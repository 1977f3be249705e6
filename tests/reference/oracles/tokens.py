"""Token ids of whole prompts in both settings of the reference's `fix_mistral_regex`.

With a local folder the reference puts another pattern in the tokenizer's place when config.json names some versions of
transformers and the vocabulary is large (section G.2).
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from family_cases import TOKENIZED
from small_family import VARIANTS, config
from small_tokenizer import write_tokenizer
from transformers import AutoConfig, AutoProcessor

from .qwen import Qwen3TTSConfig, Qwen3TTSProcessor

VERSIONS = {"mistral": "4.57.3", "qwen2": "4.57.2"}
LARGE = 100_200
"""Tokens that make a vocabulary large."""


def record(work: Path) -> dict[str, np.ndarray]:
    AutoConfig.register("qwen3_tts", Qwen3TTSConfig, exist_ok=True)
    AutoProcessor.register(Qwen3TTSConfig, Qwen3TTSProcessor, exist_ok=True)
    said: dict[str, np.ndarray] = {}
    for pattern, version in VERSIONS.items():
        folder = work / f"tokens-{pattern}"
        folder.mkdir()
        ids = write_tokenizer(folder, LARGE)
        document = config(VARIANTS["0b6-custom_voice"], ids, version)
        (folder / "config.json").write_text(json.dumps(document))
        (folder / "preprocessor_config.json").write_text(json.dumps({"processor_class": "Qwen3TTSProcessor"}))
        processor = AutoProcessor.from_pretrained(str(folder), fix_mistral_regex=True)
        for number, text in enumerate(TOKENIZED):
            prompt = f"<|im_start|>assistant\n{text}<|im_end|>\n<|im_start|>assistant\n"
            said[f"{pattern}/{number}"] = np.array(processor(text=prompt)["input_ids"]).ravel().astype(np.int32)
    return said
