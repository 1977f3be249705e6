from __future__ import annotations

import os
import pty
import termios

from voxgate.cli.say.text_input import cbreak_mode, read_stdin_text


async def test_fragments_are_yielded_as_they_are_written() -> None:
    reading, writing = os.pipe()
    fragments = aiter(read_stdin_text(reading))
    os.write(writing, "Gr\u00fc".encode()[:3])  # in the middle of a character
    assert await anext(fragments) == "Gr"
    os.write(writing, "ü".encode()[1:] + b"n")
    assert await anext(fragments) == "ün"
    os.close(writing)
    assert [rest async for rest in fragments] == []
    os.close(reading)


async def test_incomplete_last_character_becomes_replacement_character() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"a\xc3")
    os.close(writing)
    assert [fragment async for fragment in read_stdin_text(reading)] == ["a", "\ufffd"]
    os.close(reading)


async def test_terminal_delivers_keys_and_ends_at_control_d() -> None:
    keyboard, terminal = pty.openpty()
    fragments = aiter(read_stdin_text(terminal))
    os.write(keyboard, b"h")  # no Enter
    assert await anext(fragments) == "h"
    os.write(keyboard, b"\x7fi\x04")
    assert "".join([rest async for rest in fragments]) == "i"
    os.close(keyboard)
    os.close(terminal)


def test_terminal_mode_is_restored() -> None:
    _, terminal = pty.openpty()
    before = termios.tcgetattr(terminal)
    with cbreak_mode(terminal):
        assert not termios.tcgetattr(terminal)[3] & termios.ICANON
    assert termios.tcgetattr(terminal) == before
