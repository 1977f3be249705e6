"""Answers and statuses of plain HTTP."""

from __future__ import annotations

import json
from http import HTTPStatus

import pytest
from voxgate.gateway.errors import Draining, RateLimited
from voxgate.gateway.protocols.reply import error_reply, refusal, status_of
from voxgate.pipeline.errors import AtCapacity, EngineLost, EngineNotReady, TextTooLong, UnknownVoice, VoxgateError


def test_a_refusal_rounds_its_seconds_up() -> None:
    reply = refusal(HTTPStatus.SERVICE_UNAVAILABLE, "at_capacity", "full", 1001)
    assert reply.headers == {"Retry-After": "2"}
    assert json.loads(reply.body) == {"error": "at_capacity", "message": "full", "retry_after_ms": 1001}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UnknownVoice("no"), 400),
        (TextTooLong(1, 2), 400),
        (RateLimited("slow down"), 429),
        (AtCapacity("full"), 503),
        (Draining("bye"), 503),
        (EngineNotReady("soon"), 503),
        (EngineLost("lost"), 500),
        (VoxgateError("?"), 500),
    ],
)
def test_errors_have_statuses(error: VoxgateError, status: int) -> None:
    assert status_of(error) == status
    assert json.loads(error_reply(error).body)["error"] == error.code
