"""The modules of this project have the tensors of the reference's classes, with the same names and shapes."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from small_family import VARIANTS

from .conftest import LocalModel, ReferenceRecording, codec_shapes, model_shapes


def listed(recorded: ReferenceRecording, file: str) -> dict[str, tuple[int, ...]]:
    return {name: tuple(shape) for name, shape in json.loads(str(recorded[file])).items()}


@pytest.mark.parametrize("name", VARIANTS)
def test_talker_tensors_equal_the_reference(
    recorded: Callable[[str], ReferenceRecording], local_model: Callable[[str], LocalModel], name: str
) -> None:
    assert model_shapes(local_model(name).folder, VARIANTS[name]) == listed(recorded("tensors"), name)


def test_codec_tensors_equal_the_reference(
    recorded: Callable[[str], ReferenceRecording], local_model: Callable[[str], LocalModel]
) -> None:
    assert codec_shapes(local_model("0b6-base").folder) == listed(recorded("tensors"), "codec")
