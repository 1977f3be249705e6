"""What the gateway says of itself to everyone: probes for whoever runs it, limits for its clients."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from aiohttp import web

from ..admission import Gate
from ..engine import EngineNews
from ..opening import Offer
from ..sessions import Sessions
from .reply import Reply, json_reply


class Documents:
    """Answers from the state of the moment."""

    def __init__(
        self,
        offer: Offer,
        admission: Gate,
        engine: EngineNews,
        sessions: Sessions,
    ) -> None:
        self._offer = offer
        self._admission = admission
        self._engine = engine
        self._sessions = sessions

    def routes(self) -> list[web.RouteDef]:
        """What a probe, and a page that has no key yet, may ask."""
        return [
            _get("/healthz", lambda: json_reply(HTTPStatus.OK, {"status": "ok"})),
            _get("/readyz", self._readyz),
            _get("/v1/limits", self._limits),
        ]

    def _readyz(self) -> Reply:
        reason = "the gateway is shutting down" if self._sessions.draining else self._engine.reason
        if reason is None:
            return json_reply(HTTPStatus.OK, {"ready": True, "state": self._engine.state})
        document = {"ready": False, "state": self._engine.state, "reason": reason}
        return json_reply(HTTPStatus.SERVICE_UNAVAILABLE, document, {"Retry-After": "2"})

    def _limits(self) -> Reply:
        settings, admission, draining = self._offer.settings, self._admission, self._sessions.draining
        document = {
            "accepting": not draining and self._sessions.open_everywhere < settings.sockets,
            "ready": not draining and self._engine.reason is None,
            "key_needed": settings.keyed,
            "sockets": {"open": self._sessions.open_everywhere, "limit": settings.sockets},
            "utterances": {"active": admission.active, "limit": admission.slots},
            "queue": {"waiting": admission.queued, "limit": settings.queue_length},
            "session": self._offer.limits.model_dump(),
        }
        return json_reply(HTTPStatus.OK, document)


def _get(path: str, answer: Callable[[], Reply]) -> web.RouteDef:
    async def handler(_: web.Request) -> web.Response:
        return answer().response()

    return web.get(path, handler)
