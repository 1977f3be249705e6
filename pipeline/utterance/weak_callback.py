"""Callbacks that do not keep their object alive."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec
from weakref import WeakMethod

Arguments = ParamSpec("Arguments")


def weak_callback(method: Callable[Arguments, None]) -> Callable[Arguments, None]:
    """Returns a function that calls the bound `method` while its object lives, and does nothing afterwards.

    For the parts of an object that call it back: with `method` itself, object and part would be garbage that only a
    full collection finds, and the more of that there is, the longer a collection stops the event loop.
    """
    reference = WeakMethod(method)

    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        if (bound := reference()) is not None:
            bound(*args, **kwargs)

    return call
