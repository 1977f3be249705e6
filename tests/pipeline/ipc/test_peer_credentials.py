"""Whose process is at the other end of a Unix socket."""

from __future__ import annotations

import os
import socket

import pytest
from voxgate.pipeline.ipc.peer_credentials import is_same_user, peer_uid


def test_socket_pair_belongs_to_this_user() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_uid(ours) == os.getuid()
        assert is_same_user(ours)


def test_other_user_is_not_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(os, "getuid", lambda: peer_uid(ours) + 1)
    with ours, theirs:
        assert not is_same_user(ours)


def test_closed_socket_raises() -> None:
    ours, theirs = socket.socketpair()
    ours.close()
    theirs.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        peer_uid(ours)
