"""The folder vLLM is started on: the backbone's configuration beside links to the checkpoint's own weight files."""

from __future__ import annotations

import json
from pathlib import Path

from ..checkpoint import TalkerCheckpoint
from .plugin import ARCHITECTURE
from .weights import check_weights


def write_engine_folder(checkpoint: TalkerCheckpoint, slots: int, max_positions: int, folder: Path) -> None:
    """Describe the talker as what its backbone is, a Qwen3 (section C: its M-RoPE equals ordinary rotary embedding).

    vLLM's vocabulary is the slots and end of speech. Raises CheckpointError, naming the tensors, when the weights are
    not those of the checkpoint's configuration.
    """
    # Other files, such as a second copy in other pieces, are kept from vLLM, which would read them too.
    for path in check_weights(checkpoint):
        (folder / path.name).symlink_to(path.resolve())
    size = checkpoint.talker
    config = {
        "architectures": [ARCHITECTURE],
        "model_type": "qwen3",
        "hidden_size": size.hidden,
        "intermediate_size": size.intermediate,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.kv_heads,
        "head_dim": size.head_dim,
        "rms_norm_eps": size.norm_eps,
        "rope_theta": size.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": size.rope_theta},
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "max_position_embeddings": max_positions,
        "vocab_size": slots + 1,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
