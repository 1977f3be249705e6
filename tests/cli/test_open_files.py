from __future__ import annotations

import logging
import resource

import pytest
from voxgate.cli.open_files import allow_open_files

INFINITY = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("limits", "then", "warned"),
    [
        ((1024, 4096), (2512, 4096), False),
        ((1024, INFINITY), (2512, INFINITY), False),
        ((1024, 2000), (2000, 2000), True),
        ((4096, 4096), (4096, 4096), False),
        ((INFINITY, INFINITY), (INFINITY, INFINITY), False),
    ],
)
def test_there_is_room_for_all_sockets_as_far_as_the_system_lets(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    limits: tuple[int, int],
    then: tuple[int, int],
    warned: bool,
) -> None:
    now = [limits]
    monkeypatch.setattr(resource, "getrlimit", lambda _: now[0])
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: now.__setitem__(0, limits))
    with caplog.at_level(logging.WARNING):
        allow_open_files(1000)
    assert now[0] == then
    assert ("ulimit -n" in caplog.text) is warned
