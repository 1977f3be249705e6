"""Parsing of JSON messages: strict models, errors that name the invalid field, and what a refused message refers to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import pydantic_core
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError
from voxgate.pipeline.errors import BadMessage
from voxgate.pipeline.text.sanitize import join_halves, stand_in

from ..errors import QUOTED_CHARACTERS


def _has_no_half(text: str) -> str:
    if join_halves(text) != text:
        raise PydanticCustomError("half_pair", "must not contain half of a surrogate pair")
    return text


Whole = AfterValidator(_has_no_half)
"""Of a string that is repeated to the client, or compared: it has no stand-in for half of a surrogate pair."""
UtteranceId = Annotated[str, StringConstraints(min_length=1, max_length=64), Whole]
MessageId = Annotated[str, StringConstraints(max_length=128), Whole]
Name = Annotated[str, StringConstraints(min_length=1, max_length=128), Whole]
Count = Annotated[int, Field(ge=0, lt=2**53)]
"""An integer that JavaScript represents exactly."""


class StrictMessage(BaseModel):
    """A message without unknown fields and without conversions."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class GatewayMessage(StrictMessage):
    """A message to the client."""

    def encode(self) -> str:
        """Returns the JSON text of the message, without fields that are None."""
        return self.model_dump_json(exclude_none=True)


@dataclass(frozen=True, slots=True)
class MessageReference:
    """What a client's message refers to, as far as it could be read: an utterance, and its own id."""

    utterance: str | None = None
    id: str | None = None


_UTTERANCE_ID: TypeAdapter[str] = TypeAdapter(UtteranceId)
_MESSAGE_ID: TypeAdapter[str] = TypeAdapter(MessageId)


def read_reference(text: str) -> MessageReference:
    """Reads what a message refers to, also of one that is refused or cut off. Never raises."""
    fields = _read_fields(text)
    return MessageReference(
        _valid(_UTTERANCE_ID, fields.get("utterance")),
        _valid(_MESSAGE_ID, fields.get("id")),
    )


def read_id(text: str, name: str) -> str | None:
    """Reads an id from the field `name` of a message, also of one that is refused or cut off. Never raises."""
    return _valid(_MESSAGE_ID, _read_fields(text).get(name))


def _read_fields(text: str) -> dict[str, Any]:
    try:
        fields = pydantic_core.from_json(without_halves(text), allow_partial=True)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _valid(adapter: TypeAdapter[str], value: object) -> str | None:
    try:
        return adapter.validate_python(value, strict=True)
    except ValidationError:
        return None


_ESCAPE = re.compile(
    r"""\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u(?P<half>[dD][89a-fA-F][0-9a-fA-F]{2})|.)""",
    re.DOTALL,
)
"""An escape in JSON: a whole surrogate pair, half of one, or another."""


def without_halves(payload: str) -> str:
    """Returns JSON whose escaped halves of surrogate pairs are characters that stand for them (`PRIVATE_HALVES`).

    A client that divides text between UTF-16 units sends such halves, each in a message of its own; the parser of JSON
    refuses them. Where the text is read, they are joined.
    """
    if "\\u" not in payload:
        return payload
    return _ESCAPE.sub(lambda escape: stand_in(int(half, 16)) if (half := escape["half"]) else escape[0], payload)


Model = TypeVar("Model", bound=BaseModel)


def parse_json(model: type[Model], payload: str | bytes) -> Model:
    """Parses one JSON object. Raises BadMessage, whose `param` is the path of the first invalid field."""
    if isinstance(payload, str):
        payload = without_halves(payload)
    elif b"\\u" in payload:
        # Bytes that are not UTF-8 stay as they are: the parser refuses them.
        payload = without_halves(payload.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    try:
        return model.model_validate_json(payload)
    except ValidationError as invalid:
        reason, path, kind = first_error(invalid)
    param = quoted_path(_without_union_tags(path, kind, payload))
    message = f"{param}: {reason}" if param else reason
    raise BadMessage(message[:QUOTED_CHARACTERS], param=param)


def _without_union_tags(path: Sequence[int | str], kind: str, payload: str | bytes) -> Sequence[int | str]:
    """Returns the steps of `path` that are in the payload; others name the members of a union.

    Of an error of the kind `missing`, the last step is a field that is not in the payload.
    """
    value = pydantic_core.from_json(payload) if path else None
    steps: list[int | str] = []
    for place, step in enumerate(path, 1):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and isinstance(step, int):
            value = value[step] if step < len(value) else None  # else of an earlier field of the same name
        elif not (kind == "missing" and place == len(path)):
            continue
        steps.append(step)
    return steps


def first_error(invalid: ValidationError) -> tuple[str, tuple[int | str, ...], str]:
    """Returns reason, path and kind of the first invalid field. A reason quotes numbers only: texts may be keys."""
    first = invalid.errors(include_url=False)[0]
    value = first["input"]
    quoted = f", got {value}" if isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**63) else ""
    return (first["msg"] + quoted)[:QUOTED_CHARACTERS], first["loc"], first["type"]


def quoted_path(path: Sequence[int | str]) -> str | None:
    """Returns the path of a field as errors quote it; None for the whole message."""
    return ".".join(map(str, path))[:QUOTED_CHARACTERS] or None
