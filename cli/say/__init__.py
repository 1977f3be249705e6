"""`voxgate say`: speaks text from the arguments or from standard input while it is still being written."""

from .command import configure, run

__all__ = ["configure", "run"]
