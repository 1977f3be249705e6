"""A table of actions: each returns what it did, for the trace of a failing run; an empty text had nothing to act on."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..world import World

Perform = Callable[["World", random.Random], Awaitable[str]]


@dataclass(frozen=True)
class Action:
    """`weight`: how often it is drawn, relative to the others."""

    weight: float
    perform: Perform


class ActionTable(dict[str, Action]):
    """Actions by name."""

    def add(self, weight: float) -> Callable[[Perform], Perform]:
        """Decorates a function that is added under its name."""

        def decorate(perform: Perform) -> Perform:
            self[perform.__name__] = Action(weight, perform)
            return perform

        return decorate
