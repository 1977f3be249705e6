from __future__ import annotations

from contextlib import ExitStack

from voxgate.gateway.strangers import Strangers


class Street:
    """Comers by their names, and who of them was sent away."""

    def __init__(self, most: int) -> None:
        self.strangers = Strangers(most)
        self.sent_away: list[str] = []
        self._visits: dict[str, ExitStack] = {}

    def comes(self, *names: str) -> None:
        """The first letter is the address."""
        for name in names:
            visit = self._visits[name] = ExitStack()
            visit.enter_context(self.strangers.waiting(name[0], lambda name=name: self.sent_away.append(name)))

    def goes(self, name: str) -> None:
        self._visits[name].close()


def test_while_there_is_room_everybody_stays() -> None:
    street = Street(3)
    street.comes("a1", "b1", "c1")
    street.goes("b1")
    street.comes("b2")
    assert street.sent_away == []
    assert len(street.strangers) == 3


def test_the_longest_waiting_of_the_largest_crowd_makes_room() -> None:
    street = Street(4)
    street.comes("b1", "a1", "a2", "c1", "a3", "d1")
    assert street.sent_away == ["a1", "a2"]
    street.comes("e1")  # nobody is a crowd any more
    assert street.sent_away == ["a1", "a2", "b1"]


def test_who_was_sent_away_and_goes_frees_nobody_elses_place() -> None:
    street = Street(1)
    street.comes("a1", "b1")
    street.goes("a1")
    assert len(street.strangers) == 1
    street.goes("b1")
    assert len(street.strangers) == 0
