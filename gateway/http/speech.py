"""Speech over plain HTTP: one session with one utterance for each request."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from ...pipeline.errors import VoxgateError
from ..dialects.one_shot import OneShot
from ..messages import Failed
from ..observer import Observer
from ..sessions import Sessions
from .exchange import Exchange
from .reply import Reply
from .service import CALLER


class HttpSpeech:
    """Answers requests from sessions that queue, pace, drain and fail as those of sockets do."""

    def __init__(self, sessions: Sessions, observer: Observer) -> None:
        self._sessions = sessions
        self._observer = observer

    async def answer(
        self, request: web.Request, speech: OneShot, refuse: Callable[[Failed], Reply]
    ) -> web.StreamResponse:
        """Speak; cancelling it frees the slot at once. Raises Draining, AtCapacity, KeyLimit before it begins."""
        exchange = Exchange(request, speech.body.content_type)
        try:
            place = self._sessions.take_place(request[CALLER])
        except VoxgateError as error:
            self._observer.handshake_refused(error.code)
            raise
        try:
            await self._sessions.run(exchange, place, speech)
        finally:
            exchange.abandon()
        if speech.failed is not None:
            if not exchange.begun:
                return refuse(speech.failed).response()
            exchange.cut()
        return exchange.response
