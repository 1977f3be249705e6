"""The speech tokenizer's `config.json`: reading it, and the values of one of its sections by their types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SUPPORTED_RATE_HZ = 24_000

N = TypeVar("N", int, float)


class CodecFormatError(ValueError):
    """The checkpoint is not one this codec can load; the message names what is missing or different."""


def read_document(checkpoint_dir: Path) -> Mapping[str, Any]:
    """The speech tokenizer's `config.json`, parsed. Raises CodecFormatError."""
    path = checkpoint_dir / "config.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CodecFormatError(f"no codec configuration at {path}: {error.strerror}") from error
    except ValueError as error:
        raise CodecFormatError(f"{path} is not JSON: {error}") from error
    if not isinstance(document, Mapping):
        raise CodecFormatError(f"{path} must hold a JSON object")
    return document


def section_of(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A section of the document. Raises CodecFormatError when there is none."""
    section = document.get(name)
    if not isinstance(section, Mapping):
        raise CodecFormatError(f"the codec configuration has no {name}")
    return section


def typed_values(name: str, section: Mapping[str, Any], cls: type[DataclassInstance]) -> dict[str, Any]:
    """The values that `section` has for the fields of `cls`. Raises CodecFormatError for the first unusable one."""
    values: dict[str, Any] = {}
    for field in fields(cls):
        if field.name in section:
            value = section[field.name]
            try:
                values[field.name] = _read(str(field.type), value)
            except (TypeError, ValueError) as error:
                raise CodecFormatError(f"{name}.{field.name} cannot be {value!r}") from error
    return values


def _read(kind: str, value: Any) -> int | float | tuple[int, ...]:
    if kind.startswith("tuple"):
        if not value:
            raise ValueError("empty")
        return tuple(_positive(int(item)) for item in value)
    if kind == "int" and (isinstance(value, bool) or not isinstance(value, int)):
        raise TypeError("not a whole number")
    return _positive(int(value)) if kind == "int" else _positive(float(value))


def _positive(value: N) -> N:
    if value <= 0:
        raise ValueError("not positive")
    return value
