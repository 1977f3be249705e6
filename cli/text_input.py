"""Text from standard input as it comes: key by key from a terminal, chunk by chunk from a pipe."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from encodings.utf_8 import IncrementalDecoder

END_OF_TRANSMISSION = "\x04"
BACKSPACE = "\x7f"
CHUNK_BYTES = 4096
CHUNKS = 16
"""Read ahead of what was sent, so that a fast pipe is held back."""


async def typed(descriptor: int = 0) -> AsyncIterator[str]:
    """Fragments of UTF-8 text, until the end of input or Ctrl-D. Cancelling leaves the rest unread."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue()
    room = threading.Semaphore(CHUNKS)

    def read() -> None:
        chunk = b"to come"
        while chunk:
            room.acquire()
            try:
                chunk = os.read(descriptor, CHUNK_BYTES)
            except OSError:
                chunk = b""  # hung up
            try:
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)
            except RuntimeError:
                return  # the loop is gone: nobody listens any more

    # A daemon, for a blocked read of a terminal cannot be woken and must not keep the command from ending.
    threading.Thread(target=read, name="standard input", daemon=True).start()
    decoder = IncrementalDecoder(errors="replace")
    with key_by_key(descriptor):
        while chunk := await chunks.get():
            room.release()
            text = decoder.decode(chunk)
            before, end, _ = text.partition(END_OF_TRANSMISSION)
            if spoken := before.replace(BACKSPACE, ""):
                yield spoken
            if end:
                return
    if rest := decoder.decode(b"", final=True):
        yield rest


@contextmanager
def key_by_key(descriptor: int) -> Iterator[None]:
    """Have a terminal hand over keys instead of lines; what was typed is spoken, so editing ends here."""
    try:
        import termios

        before = termios.tcgetattr(descriptor)
    except (ImportError, OSError, io.UnsupportedOperation, termios.error):
        yield  # not a terminal
        return
    changed = termios.tcgetattr(descriptor)
    changed[3] &= ~termios.ICANON
    termios.tcsetattr(descriptor, termios.TCSANOW, changed)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)


def is_terminal() -> bool:
    return sys.stdin.isatty()
