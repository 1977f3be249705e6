"""A harness for each test, and vLLM's configuration for its scheduler alone."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .scheduler_harness import SchedulerHarness
from .scheduler_loop import LONGEST, SLOTS


@pytest.fixture
def harness() -> Iterator[SchedulerHarness]:
    harness = SchedulerHarness()
    yield harness
    harness.close()


@pytest.fixture(scope="module")
def vllm_config(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """As `launch.start_vllm` makes it, with small numbers."""
    os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
    from vllm import AsyncEngineArgs

    folder = tmp_path_factory.mktemp("talker")
    described = {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 64, "intermediate_size": 64,
        "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 64,
        "max_position_embeddings": LONGEST, "vocab_size": SLOTS + 1,
    }  # fmt: skip  # one configuration
    Path(folder, "config.json").write_text(json.dumps(described), encoding="utf-8")
    return AsyncEngineArgs(
        model=str(folder), skip_tokenizer_init=True, dtype="float32", max_model_len=LONGEST, max_num_seqs=SLOTS,
        max_num_batched_tokens=48, enable_prefix_caching=False, async_scheduling=True, enforce_eager=True,
        disable_log_stats=True,
    ).create_engine_config()  # fmt: skip  # one call
