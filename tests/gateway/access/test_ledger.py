"""What several processes count together."""

from __future__ import annotations

from pathlib import Path

import pytest
from voxgate.gateway.access.caller import Caller
from voxgate.gateway.access.keys import KeyLimits
from voxgate.gateway.access.ledger import Ledger
from voxgate.gateway.errors import KeyLimit


def two() -> tuple[Ledger, Ledger]:
    first = Ledger.create()
    return first, Ledger.attach(first.path, 1)


def test_sockets_add_up_and_those_of_a_dead_process_are_struck_out() -> None:
    first, second = two()
    for ledger in (first, second, second):
        assert ledger.take_socket(3)
        assert ledger.take_caller_socket("ada", 3, 10.0)
    assert second.take_caller_socket("bob", None, 10.0)
    assert first.open_sockets == 3
    assert (first.sockets("ada", 10.0), second.sockets("ada", 10.0), first.sockets("bob", 10.0)) == (3, 3, 1)
    first.strike_out(1)
    assert (second.open_sockets, second.sockets("ada", 11.0), second.sockets("bob", 11.0)) == (1, 1, 0)


def test_the_last_place_is_taken_once() -> None:
    first, second = two()
    assert first.take_socket(2)
    assert second.take_socket(2)
    assert not first.take_socket(2)
    assert not second.take_socket(2)
    assert first.take_caller_socket("ada", 1, 0.0)
    assert not second.take_caller_socket("ada", 1, 0.0)
    second.give_socket()
    first.give_caller_socket("ada", 0.0)
    assert (first.open_sockets, first.sockets("ada", 0.0)) == (1, 0)
    assert first.take_socket(2)
    assert second.take_caller_socket("ada", 1, 0.0)


def test_a_bucket_is_everybodys() -> None:
    first, second = two()
    assert first.spend("ada", 60, 1.0, 60.0, 100.0) == 0.0
    assert second.spend("ada", 10, 1.0, 60.0, 105.0) == 5.0
    assert second.spend("ada", 5, 1.0, 60.0, 105.0) == 0.0, "the refused ones cost nothing"
    assert first.spend("ada", 60, 1.0, 60.0, 1000.0) == 0.0, "it holds no more than it can"
    assert first.spend("ada", 1, 1.0, 60.0, 1000.0) == 1.0
    assert first.spend("bob", 60, 1.0, 60.0, 1000.0) == 0.0


def test_names_come_and_go_without_end() -> None:
    ledger, _ = two()
    ledger.take_caller_socket("stays", None, 0.0)
    for number in range(20_000):
        ledger.take_caller_socket(f"10.0.{number}", None, float(number))
        ledger.give_caller_socket(f"10.0.{number}", float(number))
    assert ledger.sockets("stays", 20_000.0) == 1


def test_one_that_found_no_room_owes_nothing_when_there_is_some() -> None:
    ledger, _ = two()
    ledger.give_caller_socket("ada", 0.0)
    ledger.take_caller_socket("ada", None, 0.0)
    assert ledger.sockets("ada", 0.0) == 1


def test_nobody_is_forgotten_who_owes_text() -> None:
    ledger, _ = two()
    assert ledger.spend("ada", 600, 1.0, 60.0, 1.0) == 0.0
    for number in range(6_000):
        ledger.spend(f"10.0.{number}", 1, 1.0, 60.0, 200.0)
    assert ledger.spend("ada", 1, 1.0, 60.0, 301.0) == 241.0


def test_a_caller_counts_over_all_processes_where_it_has_a_limit() -> None:
    first, second = two()
    here = Caller("ada", KeyLimits(sockets=2), keyed=False, ledger=first)
    there = Caller("ada", KeyLimits(sockets=2), keyed=False, ledger=second)
    unlimited = Caller("bob", KeyLimits(), keyed=False, ledger=first)
    here.take_socket(0.0)
    there.take_socket(0.0)
    unlimited.take_socket(0.0)
    assert second.sockets("ada", 0.0) == 2
    assert second.sockets("bob", 0.0) == 0
    with pytest.raises(KeyLimit):
        here.take_socket(0.0)
    there.give_socket(0.0)
    assert first.sockets("ada", 0.0) == 1


def test_it_has_no_name_in_any_file_system() -> None:
    ledger = Ledger.create()
    assert str(Path(ledger.path).readlink()).startswith("/memfd:")
