"""The bench on the demo voice's tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.pipeline.speech_bench import SpeechBench
from voxgate.pipeline.text.tokenizer import TextTokenizer, load_tokenizer


@pytest.fixture(scope="session")
def text_tokenizer(demo_folder: Path) -> TextTokenizer:
    return load_tokenizer(demo_folder)


@pytest.fixture
def bench(text_tokenizer: TextTokenizer) -> Callable[..., SpeechBench]:
    return lambda **options: SpeechBench(text_tokenizer, **options)
