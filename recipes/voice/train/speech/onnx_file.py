"""Reads the nodes and weights of an ONNX file, a protocol buffer, without the package that defines it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_GRAPH, _NODE, _INITIALIZER = 7, 1, 5
_INPUT, _NAME, _OPERATOR = 1, 3, 4
_DIMENSIONS, _TYPE, _TENSOR_NAME, _RAW = 1, 2, 8, 9
_PLAIN = {4: np.float32, 5: np.int32, 7: np.int64}
"""Fields with the values of small tensors instead of `_RAW`; the two integer ones are varints."""
_TYPES: dict[int, Any] = {1: np.float32, 2: np.uint8, 3: np.int8, 6: np.int32, 7: np.int64, 9: np.bool_, 11: np.float64}


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """A node: its name, operator and inputs."""

    name: str
    operator: str
    inputs: list[str]


@dataclass(frozen=True, slots=True)
class OnnxGraph:
    """Nodes in order, and the weights by name."""

    nodes: list[OnnxNode]
    weights: dict[str, NDArray[Any]]


def read_graph(model: bytes) -> OnnxGraph:
    """Read a model. Raises ValueError for a tensor of another type or size."""
    nodes, weights = [], {}
    for number, graph in _fields(memoryview(model)):
        if number != _GRAPH:
            continue
        for part, content in _fields(graph):
            if part == _NODE:
                nodes.append(_node(content))
            elif part == _INITIALIZER:
                name, tensor = _tensor(content)
                weights[name] = tensor
    return OnnxGraph(nodes, weights)


def _node(content: memoryview) -> OnnxNode:
    name, operator, inputs = "", "", []
    for number, value in _fields(content):
        if number == _INPUT:
            inputs.append(str(value, "utf-8"))
        elif number == _NAME:
            name = str(value, "utf-8")
        elif number == _OPERATOR:
            operator = str(value, "utf-8")
    return OnnxNode(name, operator, inputs)


def _tensor(content: memoryview) -> tuple[str, NDArray[Any]]:
    name, kind, shape = "", 0, list[int]()
    values: NDArray[Any] | None = None
    for number, value in _fields(content):
        if number == _DIMENSIONS:
            shape += [value] if isinstance(value, int) else _varints(value)
        elif number == _TYPE:
            kind = value
        elif number == _TENSOR_NAME:
            name = str(value, "utf-8")
        elif number == _RAW:
            values = np.frombuffer(value, _TYPES.get(kind, np.uint8))
        elif number in _PLAIN:
            numbers = [value] if isinstance(value, int) else None
            if numbers is None and number == 4:
                values = np.frombuffer(value, np.float32)
            else:
                values = np.array(_varints(value) if numbers is None else numbers, np.int64)
    if kind not in _TYPES or values is None or values.size != int(np.prod(shape)):
        raise ValueError(f"{name!r} must be a tensor of a known type with all its values; type {kind}, shape {shape}")
    return name, values.astype(_TYPES[kind]).reshape(shape)


def _varint(content: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value if value < 1 << 63 else value - (1 << 64), at


def _varints(content: memoryview) -> list[int]:
    at, found = 0, []
    while at < len(content):
        value, at = _varint(content, at)
        found.append(value)
    return found


def _fields(content: memoryview) -> Iterator[tuple[int, Any]]:
    """Yield the number of each field with its content: an int, or bytes. Raises ValueError for other wire types."""
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        wire, number = key & 7, key >> 3
        if wire == 0:
            value, at = _varint(content, at)
            yield number, value
            continue
        if wire == 2:
            size, at = _varint(content, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"a protocol buffer has the wire types 0, 1, 2 and 5, not {wire}")
        yield number, content[at : at + size]
        at += size
