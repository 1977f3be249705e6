from __future__ import annotations

import os
import pty
import termios

from voxgate.cli.text_input import key_by_key, typed


async def test_fragments_come_as_they_are_written() -> None:
    reading, writing = os.pipe()
    fragments = aiter(typed(reading))
    os.write(writing, "Gr\u00fc".encode()[:3])  # in the middle of a character
    assert await anext(fragments) == "Gr"
    os.write(writing, "ü".encode()[1:] + b"n")
    assert await anext(fragments) == "ün"
    os.close(writing)
    assert [rest async for rest in fragments] == []
    os.close(reading)


async def test_a_broken_last_character_is_not_lost_silently() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"a\xc3")
    os.close(writing)
    assert [fragment async for fragment in typed(reading)] == ["a", "\ufffd"]
    os.close(reading)


async def test_a_terminal_hands_over_keys_and_ends_with_control_d() -> None:
    keyboard, terminal = pty.openpty()
    fragments = aiter(typed(terminal))
    os.write(keyboard, b"h")  # no Enter
    assert await anext(fragments) == "h"
    os.write(keyboard, b"\x7fi\x04")
    assert "".join([rest async for rest in fragments]) == "i"
    os.close(keyboard)
    os.close(terminal)


def test_the_terminal_is_put_back() -> None:
    _, terminal = pty.openpty()
    before = termios.tcgetattr(terminal)
    with key_by_key(terminal):
        assert not termios.tcgetattr(terminal)[3] & termios.ICANON
    assert termios.tcgetattr(terminal) == before
