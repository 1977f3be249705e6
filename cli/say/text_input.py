"""Text from standard input as it is written: key by key from a terminal, chunk by chunk from a pipe."""

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
MAX_UNSENT_CHUNKS = 16
"""Chunks read before the first of them is sent; the thread then stops reading, so that a fast pipe is held back."""


async def read_stdin_text(descriptor: int = 0) -> AsyncIterator[str]:
    """Yields UTF-8 text in fragments as they arrive, until the end of input or Ctrl-D.

    Cancelling leaves the rest unread, except for up to `MAX_UNSENT_CHUNKS` chunks.
    """
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue()
    unsent = threading.Semaphore(MAX_UNSENT_CHUNKS)

    def read() -> None:
        while True:
            unsent.acquire()
            try:
                chunk = os.read(descriptor, CHUNK_BYTES)
            except OSError:
                chunk = b""  # the terminal has hung up
            try:
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)
            except RuntimeError:
                return  # the event loop is closed
            if not chunk:
                return

    # A daemon: a blocked read of a terminal cannot be interrupted and must not keep the command from ending.
    threading.Thread(target=read, name="standard input", daemon=True).start()
    decoder = IncrementalDecoder(errors="replace")
    with cbreak_mode(descriptor):
        while chunk := await chunks.get():
            unsent.release()
            text = decoder.decode(chunk)
            before, end, _ = text.partition(END_OF_TRANSMISSION)
            if spoken := before.replace(BACKSPACE, ""):
                yield spoken
            if end:
                return
    if rest := decoder.decode(b"", final=True):
        yield rest


@contextmanager
def cbreak_mode(descriptor: int) -> Iterator[None]:
    """Makes a terminal deliver keys instead of lines: text is spoken as it is typed and cannot be edited."""
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
