"""Keeps the garbage collector from stopping all audio: exempts long-lived objects, and makes full collections rare.

A file of its own because the gateway's processes and the command line use it without the rest of the pipeline.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

FULL_AFTER = 100
"""Collections of the middle generation, one for some 7,000 new objects, between full ones (Python's default: 10). Ended
sockets leave no garbage, so that little is found."""


def freeze_gc() -> None:
    """Collects garbage now, and exempts all objects that remain until the next call. Makes full collections rare.

    Call it after each start of something large: a full collection that visits everything loaded would stop all audio
    for tenths of a second. Exempted objects that become garbage later, such as a lost engine's memory and descriptors,
    are freed by the next call only.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, FULL_AFTER)


@contextmanager
def gc_paused() -> Iterator[None]:
    """Leaves automatic collections out, in all threads: for imports, which leave no garbage behind."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
