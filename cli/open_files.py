"""How many files this process may hold open: a socket is one, and many systems allow 1024 unless asked for more."""

from __future__ import annotations

import logging
import resource

OWN = 512
"""For everything that is no client's socket: the engine's start alone takes dozens."""

log = logging.getLogger(__name__)


def allow_open_files(sockets: int) -> None:
    """Have room for so many WebSockets and as many connections of plain HTTP, as far as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * sockets + OWN
    if soft != resource.RLIM_INFINITY and soft < needed:
        allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        if allowed < needed:
            log.warning(
                "only %d open files are allowed, %d sockets may need %d: see `ulimit -n`", hard, sockets, needed
            )
