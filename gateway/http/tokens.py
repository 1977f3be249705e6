"""`POST /v1/tokens`: a short-lived token for a browser, made by a server that holds an API key."""

from __future__ import annotations

from http import HTTPStatus

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from ..access.access import Access
from ..access.credential import credential_of
from ..access.tokens import DEFAULT_TTL_S, MAX_TTL_S
from .body import read_json
from .reply import json_reply


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")

    ttl_s: int = Field(DEFAULT_TTL_S, ge=1, le=MAX_TTL_S)


def token_routes(access: Access) -> list[web.RouteDef]:
    async def issue(request: web.Request) -> web.Response:
        asked = await read_json(request, _Asked, default=b"{}")
        token, expires = access.issue_token(credential_of(request.headers, request.query), asked.ttl_s)
        document = {"token": token, "expires_at": expires.isoformat()}
        return json_reply(HTTPStatus.CREATED, document, {"Cache-Control": "no-store"}).response()

    return [web.post("/v1/tokens", issue)]
