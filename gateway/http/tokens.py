"""`POST /v1/tokens`: a short-lived token for a browser, made by a server that holds an API key."""

from __future__ import annotations

from http import HTTPStatus

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...pipeline.errors import BadMessage
from ..access.access import Access
from ..access.credential import credential_of
from ..access.tokens import DEFAULT_TTL_S, MAX_TTL_S
from .reply import json_reply


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")

    ttl_s: int = Field(DEFAULT_TTL_S, ge=1, le=MAX_TTL_S)


def token_routes(access: Access) -> list[web.RouteDef]:
    async def issue(request: web.Request) -> web.Response:
        text = await request.text()
        try:
            asked = _Asked.model_validate_json(text or "{}")
        except ValidationError as refused:
            first = refused.errors(include_url=False)[0]
            param = ".".join(map(str, first["loc"])) or None
            raise BadMessage(f"{param or 'body'}: {first['msg']}", param=param) from None
        token, expires = access.issue_token(credential_of(request.headers, request.query), asked.ttl_s)
        document = {"token": token, "expires_at": expires.isoformat()}
        return json_reply(HTTPStatus.CREATED, document, {"Cache-Control": "no-store"}).response()

    return [web.post("/v1/tokens", issue)]
