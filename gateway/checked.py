"""JSON of a client, checked against a model; what is wrong with it is told by the name of the field."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from ..pipeline.errors import BadMessage

_QUOTED_CHARACTERS = 200
"""A refusal quotes what it refuses; a client must not make us send long messages back."""

Model = TypeVar("Model", bound=BaseModel)


def checked(model: type[Model], payload: str | bytes) -> Model:
    """Read one JSON object. Raises BadMessage, whose `param` is the path of the first bad field."""
    try:
        return model.model_validate_json(payload)
    except ValidationError as refused:
        first = refused.errors(include_url=False, include_input=False)[0]
    param = ".".join(map(str, first["loc"]))[:_QUOTED_CHARACTERS] or None
    message = f"{param}: {first['msg']}" if param else first["msg"]
    raise BadMessage(message[:_QUOTED_CHARACTERS], param=param)
