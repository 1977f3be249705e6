"""The whole thing in one call: text in, audio out."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from contextlib import suppress
from typing import Any

from .events import Audio
from .session import DEFAULT_URL, connect


async def say(
    text: str | Iterable[str] | AsyncIterable[str],
    *,
    url: str = DEFAULT_URL,
    key: str | None = None,
    tls: ssl.SSLContext | None = None,
    **options: Any,
) -> AsyncIterator[Audio]:
    """Speak `text` and yield its audio while more text still arrives, for example from a language model.

    `key` and `tls` are those of `connect`, `options` those of `Session.utterance`. An error of the text's source is
    raised here. Closing the iterator stops the speech; use `contextlib.aclosing` when not iterating to the end.
    """
    fragments = [text] if isinstance(text, str) else text
    async with connect(url, key=key, tls=tls) as session, session.utterance(**options) as utterance:
        feeding = asyncio.create_task(utterance.feed(fragments), name="voxgate text")
        try:
            async for audio in utterance.audio():
                yield audio
        finally:
            feeding.cancel()
            # What went wrong with the text has ended the audio with the same error already.
            with suppress(asyncio.CancelledError, Exception):
                await feeding
