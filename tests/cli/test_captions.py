from __future__ import annotations

import asyncio
import io

from voxgate.cli.captions import Captions
from voxgate.client import Word


async def test_words_come_out_as_they_were_sent() -> None:
    out = io.StringIO()
    captions = Captions(out)
    captions.add_text("Well, hello!\n")
    captions.schedule([Word("Well", 0, 4, 0, 300), Word("hello", 6, 11, 400, 700)], played_ms=500)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    captions.finish(heard_all=False)
    assert out.getvalue() == "Well, hello! \n"


async def test_words_not_yet_heard_are_not_shown() -> None:
    out = io.StringIO()
    captions = Captions(out)
    captions.add_text("one two")
    captions.schedule([Word("one", 0, 3, 0, 300), Word("two", 4, 7, 60_000, 61_000)], played_ms=0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    captions.finish(heard_all=False)
    assert out.getvalue() == "one \n"


async def test_what_the_player_finished_was_heard() -> None:
    out = io.StringIO()
    captions = Captions(out)
    captions.add_text("one two.")
    captions.schedule([Word("two", 4, 7, 60_000, 61_000)], played_ms=0)
    captions.finish(heard_all=True)
    assert out.getvalue() == "one two.\n"
