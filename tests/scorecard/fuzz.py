"""Messages that nobody sends: valid ones with their structure, their values and their bytes spoilt."""

from __future__ import annotations

import json
import random
from typing import Any

ODD_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 2**53, 2**64, 10**400, 1e308, -0.0, "", " ", "\x00", "\ud800", "\U0010ffff", "é" * 200,
    [], {}, [[]], {"a": {"b": {}}}, ["text"] * 50, "x" * 5000,
)  # fmt: skip
ODD_TEXTS = (
    "", " ", "null", "[]", "{}", "0", '"', "{", "NaN", '{"type":NaN}', '{"type":"text","type":"end"}', "[" * 500,
    '{"a":' * 200, "\x00", "\u2028", '{"type":"\\ud800"}', "true", "1e999", '{"type":1e999}', "\ufeff{}",
)  # fmt: skip


def spoilt(chance: random.Random, examples: list[dict[str, Any]]) -> str | bytes:
    """One message: a valid one as it is, or damaged in one of many ways."""
    message = dict(chance.choice(examples))
    match chance.randrange(10):
        case 0:
            return json.dumps(message)
        case 1:
            return chance.choice(ODD_TEXTS)
        case 2 | 3:
            return json.dumps(_field_changed(chance, message))
        case 4:
            message.pop(chance.choice(list(message)))
            return json.dumps(message)
        case 5:
            message[_odd_name(chance)] = chance.choice(ODD_VALUES)
            return json.dumps(message)
        case 6:
            return json.dumps([message] * chance.randrange(3))
        case 7:
            return json.dumps(message)[: chance.randrange(60)]
        case 8:
            return _letters_changed(chance, json.dumps(message, ensure_ascii=False))
        case _:
            return chance.randbytes(chance.randrange(40)) if chance.random() < 0.1 else json.dumps(message) + "x"


def _field_changed(chance: random.Random, message: dict[str, Any]) -> dict[str, Any]:
    name = chance.choice(list(message))
    if isinstance(message[name], dict) and message[name] and chance.random() < 0.7:
        return message | {name: _field_changed(chance, message[name])}
    return message | {name: chance.choice(ODD_VALUES)}


def _odd_name(chance: random.Random) -> str:
    return chance.choice(["", "Type", "__proto__", "x" * 300, "utterance ", "\x00", "\ud800"])


def _letters_changed(chance: random.Random, text: str) -> str:
    letters = list(text)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(letters))
        match chance.randrange(3):
            case 0:
                letters[at] = chr(chance.choice([0, 10, 34, 92, 123, 0x7F, 0x202E, 0x1F600]))
            case 1:
                letters.insert(at, chance.choice('"{}[]:,\\'))
            case 2:
                letters[at] = ""
    return "".join(letters)
