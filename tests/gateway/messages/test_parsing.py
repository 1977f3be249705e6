"""Which field an error of a JSON message names."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel
from voxgate.gateway.messages.parsing import parse_json
from voxgate.pipeline.errors import BadMessage


class Item(BaseModel):
    id: str


class Message(BaseModel):
    text: str
    one: Item | int | None = None
    many: list[Item | int] = []
    item: Item | None = None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"text": 5}, "text"),
        ({}, "text"),
        ({"text": "a", "one": "x"}, "one"),
        ({"text": "a", "one": {"id": 5}}, "one.id"),
        ({"text": "a", "one": {}}, "one.id"),
        ({"text": "a", "many": [1, "x"]}, "many.1"),
        ({"text": "a", "item": {}}, "item.id"),
        ([], None),
    ],
)
def test_error_names_the_field_without_the_member_of_a_union(fields: Any, param: str | None) -> None:
    with pytest.raises(BadMessage) as refused:
        parse_json(Message, json.dumps(fields))
    assert refused.value.param == param
    assert refused.value.message.startswith(f"{param}: " if param else "Input")
