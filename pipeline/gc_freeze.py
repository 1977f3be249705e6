"""What is there for good is left alone by Python's garbage collector, which would go through it again and again."""

from __future__ import annotations

import gc


def freeze_gc() -> None:
    """Spare everything that lives now, until the next call, which removes what of it is garbage by then.

    After each start of something large: a full collection of what was loaded would silence everybody for tenths of a
    second. What was spared and died since, such as a lost engine's memory and descriptors, is found only here.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
