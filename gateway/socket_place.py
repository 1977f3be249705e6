"""A socket's place: taken before its handshake is answered, so that no two can take the last one, given back once."""

from __future__ import annotations

from collections.abc import Callable

from .access.caller import Caller


class SocketPlace:
    """One of the gateway's sockets, and one of its caller's; `returned` takes both back."""

    def __init__(self, caller: Caller, returned: Callable[[], None]) -> None:
        self.caller = caller
        self._returned: Callable[[], None] | None = returned

    def give_back(self) -> None:
        """The socket is closed, or was never opened. Safe to call twice."""
        returned, self._returned = self._returned, None
        if returned is not None:
            returned()
