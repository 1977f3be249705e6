"""The modules of this project have the tensors of the reference's classes, with the same names and shapes."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from small_family import VARIANTS

from .conftest import LocalModel, ReferenceRecording, codec_shapes, model_shapes


def listed(said: ReferenceRecording, file: str) -> dict[str, tuple[int, ...]]:
    return {name: tuple(shape) for name, shape in json.loads(str(said[file])).items()}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_talkers(said: Callable[[str], ReferenceRecording], ours: Callable[[str], LocalModel], name: str) -> None:
    assert model_shapes(ours(name).folder, VARIANTS[name]) == listed(said("tensors"), name)


def test_the_codecs(said: Callable[[str], ReferenceRecording], ours: Callable[[str], LocalModel]) -> None:
    assert codec_shapes(ours("0b6-base").folder) == listed(said("tensors"), "codec")
