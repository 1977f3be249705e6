"""Multipart forms of clients: parts as they were sent, bounded.

The library's own reader of forms decodes with any codec that a part names, some of which take seconds.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Callable

from aiohttp import BadContentDispositionHeader, BadContentDispositionParam, BodyPartReader
from aiohttp.multipart import MultipartReader
from voxgate.pipeline.errors import BadMessage, VoxgateError

# The library warns of every odd header of a form, and prints it: text of users, as often as they like.
for _category in (BadContentDispositionHeader, BadContentDispositionParam):
    warnings.simplefilter("ignore", _category)

MAX_PARTS = 20


async def named_parts(form: MultipartReader) -> AsyncIterator[tuple[str, AsyncIterator[bytes]]]:
    """Name and chunks of each part; the caller reads all of them. Raises BadMessage, and the library's errors."""
    parts = 0
    async for part in form:
        parts += 1
        if not isinstance(part, BodyPartReader) or part.name is None or parts > MAX_PARTS:
            raise BadMessage(f"the form must have at most {MAX_PARTS} named parts")
        yield part.name, _chunks(part)


async def _chunks(part: BodyPartReader) -> AsyncIterator[bytes]:
    while chunk := await part.read_chunk():
        yield chunk


async def read_limited(
    chunks: AsyncIterator[bytes], max_bytes: int, too_large: Callable[[], VoxgateError]
) -> bytearray:
    """Joins the chunks. Raises what `too_large` returns as soon as they exceed `max_bytes`."""
    received = bytearray()
    async for chunk in chunks:
        received += chunk
        if len(received) > max_bytes:
            raise too_large()
    return received  # a copy of 100 MB would hold the event loop


async def read_text(name: str, chunks: AsyncIterator[bytes], max_bytes: int) -> str:
    """The text of the part of that name. Raises BadMessage."""
    param = name[:100]
    sent = await read_limited(
        chunks, max_bytes, lambda: BadMessage(f"{param} must not exceed {max_bytes} bytes", param=param)
    )
    try:
        return sent.decode()
    except UnicodeDecodeError:
        raise BadMessage(f"{param} must be UTF-8", param=param) from None
