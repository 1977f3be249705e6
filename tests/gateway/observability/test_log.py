"""Log lines, and what must not be in them."""
# TODO-DOC Writing a log to what may stand still.

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import select
from collections.abc import Iterator
from contextlib import suppress

import pytest
from fakes.gateway.in_process import InProcessGateway, say
from fakes.pipeline.tone_synthesizer import ToneScript
from fakes.virtual_time import run
from fakes.waiting import DEADLINE_S
from voxgate.gateway.observability import log
from voxgate.gateway.observability.log import NonBlockingHandler


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root, library = logging.getLogger(), logging.getLogger("websockets")
    before = root.handlers, root.level, library.level
    yield
    root.handlers, root.level = before[0], before[1]
    library.setLevel(before[2])


def written(capfd: pytest.CaptureFixture[str]) -> str:
    logging.getLogger().handlers[0].flush()
    return capfd.readouterr().err


def test_json_lines_carry_the_ids(capfd: pytest.CaptureFixture[str]) -> None:
    log.configure("info", "json")
    logging.getLogger("voxgate.test").info("hello %s", "there", extra={"session": "s1", "utterance": 2})
    logging.getLogger("voxgate.test").debug("not this")
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("voxgate.test").exception("bad")
    first, second = (json.loads(line) for line in written(capfd).splitlines())
    assert (first["message"], first["level"], first["session"], first["utterance"]) == (
        "hello there",
        "info",
        "s1",
        2,
    )
    assert first["time"].endswith("Z")
    assert "ValueError: broken" in second["exception"]


def test_text_lines_carry_the_ids(capfd: pytest.CaptureFixture[str]) -> None:
    log.configure("warning", "text")
    logging.getLogger("voxgate.test").warning("hello", extra={"session": "s1", "vllm_process_name": "x"})
    assert written(capfd).endswith("WARNING voxgate.test: hello session=s1\n")


def test_what_users_say_is_not_logged(capfd: pytest.CaptureFixture[str]) -> None:
    log.configure("info", "json")

    async def scene() -> None:
        async with InProcessGateway(ToneScript(fail_frame=10)) as bench:
            socket = bench.connect()
            say(socket, "secret name", "Nobody but you shall know this secret.")
            socket.put_raw('{"type": "secret"}')
            await socket.until("error", 2)
            await asyncio.sleep(1)

    run(scene())
    lines = written(capfd)
    assert '"utterance": "s0.1"' in lines
    assert "secret" not in lines


class Pipe:
    """As the process that starts a gateway gives it one for its standard error."""

    def __init__(self) -> None:
        self.end, self.begin = os.pipe()
        fcntl.fcntl(self.begin, fcntl.F_SETPIPE_SZ, 4096)

    def read_until(self, words: str) -> str:
        text = ""
        while words not in text:
            assert select.select([self.end], [], [], DEADLINE_S)[0], text
            text += os.read(self.end, 65_536).decode()
        return text

    def close(self) -> None:
        for descriptor in (self.end, self.begin):
            with suppress(OSError):
                os.close(descriptor)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


def tell(handler: logging.Handler, words: str) -> None:
    handler.handle(logging.LogRecord("test", logging.INFO, "", 0, words, (), None))


def test_lines_come_in_order(pipe: Pipe) -> None:
    handler = NonBlockingHandler(pipe.begin)
    for words in ("one", "two", "a lone \ud800"):
        tell(handler, words)
    assert pipe.read_until("ud800") == "one\ntwo\na lone \\ud800\n"


def test_nobody_waits_for_a_reader_who_stands_still_and_the_loss_is_told(pipe: Pipe) -> None:
    handler = NonBlockingHandler(pipe.begin, most=100)
    for number in range(1000):
        tell(handler, f"{number:04}" + "x" * 95)
    text = pipe.read_until("were lost")
    tell(handler, "the next")
    text += pipe.read_until("the next")
    whole = text.count("x" * 95)
    lost = int(next(line for line in text.splitlines() if "were lost" in line).split()[0])
    assert 100 <= whole < 250
    assert whole + lost == 1000
    assert text.endswith("the next\n")


def test_a_reader_who_is_gone_is_no_error(pipe: Pipe) -> None:
    handler = NonBlockingHandler(pipe.begin)
    os.close(pipe.end)
    tell(handler, "into the void")
    handler.flush()
    os.close(pipe.begin)
    tell(handler, "and again")
    handler.flush()
    assert handler._lost == 2


def test_many_lines_go_in_few_writes_that_a_pipe_keeps_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    monkeypatch.setattr(os, "write", lambda _, data: written.append(data) or len(data))
    handler = NonBlockingHandler(-1)
    tell(handler, "the first comes at once")
    handler.flush()
    lines = [f"{number:03}" + "x" * 96 for number in range(100)] + ["y" * 5000, "the last"]
    with handler._turn:  # all of them before the thread's next look
        for line in lines:
            tell(handler, line)
    handler.flush()
    assert written[0] == b"the first comes at once\n"
    assert b"".join(written[1:]).decode().splitlines() == lines
    assert [len(data) for data in written[1:]] == [4000, 4000, 2000, 5001, 9]


def test_a_flush_waits_until_all_is_written(pipe: Pipe) -> None:
    handler = NonBlockingHandler(pipe.begin)
    tell(handler, "the last words")
    handler.flush()
    assert os.read(pipe.end, 100) == b"the last words\n"
