"""Rates of frames: of every kind, of control frames, and before the client has shown its key."""

from __future__ import annotations

import pytest
from voxgate.gateway.transport.frame_policy import (
    CONTROL_FRAMES_PER_S,
    FRAGMENTS_PER_S,
    MESSAGE_FRAMES,
    PENDING_FRAMES,
    FramePolicy,
)


def frames_until_violation(policy: FramePolicy, rate_per_s: float, *, control: bool) -> tuple[int, str]:
    """Sends frames at a rate; returns the number of the frame that is a violation, and why it is one."""
    for number in range(100_000):
        if reason := policy.violation(number / rate_per_s, control=control):
            return number, reason
    return 100_000, ""


@pytest.mark.parametrize(
    ("rate_per_s", "control", "reason"),
    [
        (700, False, ""),
        (2000, False, "too many frames"),
        (CONTROL_FRAMES_PER_S - 1, True, ""),
        (10 * CONTROL_FRAMES_PER_S, True, "too many control frames"),
    ],
)
def test_frames_above_their_rate_disconnect(rate_per_s: float, control: bool, reason: str) -> None:
    assert frames_until_violation(FramePolicy(800), rate_per_s, control=control)[1] == reason


def test_client_without_key_has_few_frames() -> None:
    policy = FramePolicy(800)
    policy.restrict()
    assert frames_until_violation(policy, 1, control=False) == (PENDING_FRAMES, "too many frames before the API key")


def test_client_with_key_has_the_ordinary_rates() -> None:
    policy = FramePolicy(800)
    policy.restrict()
    policy.violation(0.0, control=False)
    policy.lift()
    assert frames_until_violation(policy, 100, control=False)[1] == ""


def test_a_message_has_a_bounded_number_of_frames() -> None:
    policy = FramePolicy(frames_per_s=10_000)
    for now_s in (0.0, 10.0):  # frames in between belong to no message
        assert [policy.violation(now_s, fin=False) for _ in range(MESSAGE_FRAMES - 1)] == [None] * (MESSAGE_FRAMES - 1)
        assert policy.violation(now_s) is None
        assert policy.violation(now_s, fin=True) is None
    violations = [policy.violation(20.0, fin=False) for _ in range(MESSAGE_FRAMES)]
    assert violations[-1] == f"a message has more than {MESSAGE_FRAMES} frames"


def test_fragments_above_their_rate_disconnect() -> None:
    def send(rate_per_s: float) -> str:
        policy = FramePolicy(800)
        for number in range(10_000):
            if reason := policy.violation(number / rate_per_s, fin=number % 100 == 99):
                return reason
        return ""

    assert send(FRAGMENTS_PER_S) == ""
    assert send(2 * FRAGMENTS_PER_S) == "too many fragments"
