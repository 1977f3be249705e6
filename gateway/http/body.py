"""JSON bodies of requests: bounded, in time, and checked."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError

from ...pipeline.errors import BadMessage

_READ_S = 10.0

Model = TypeVar("Model", bound=BaseModel)


async def read_json(request: web.Request, model: type[Model]) -> Model:
    """The body as a `model`. Raises BadMessage, whose `param` is the path of the first bad field."""
    try:
        async with asyncio.timeout(_READ_S):
            body = await request.read()
    except TimeoutError:
        raise BadMessage("the body did not arrive in time") from None
    try:
        return model.model_validate_json(body)
    except ValidationError as refused:
        first = refused.errors(include_url=False, include_input=False)[0]
        param = ".".join(map(str, first["loc"]))[:200] or None
        message = f"{param}: {first['msg']}" if param else first["msg"]
        raise BadMessage(message[:200], param=param) from None
