"""JSON bodies of requests: bounded, in time, and checked."""

from __future__ import annotations

import asyncio

from aiohttp import web

from ...pipeline.errors import BadMessage
from ..checked import Model, checked

_READ_S = 10.0


async def read_json(request: web.Request, model: type[Model], default: bytes = b"") -> Model:
    """The body, `default` when it is empty, as a `model`.

    Raises BadMessage, whose `param` is the path of the first bad field; also when it takes too long to come.
    """
    try:
        async with asyncio.timeout(_READ_S):
            body = await request.read()
    except TimeoutError:
        raise BadMessage("the body did not arrive in time") from None
    return checked(model, body or default)
