"""Log lines, and what must not be in them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator

import pytest
from fakes.bench import Bench, say
from fakes.tone import Script
from fakes.virtual_time import run
from voxgate.gateway import log


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
        async with Bench(Script(fail_frame=10)) as bench:
            socket = bench.connect()
            say(socket, "secret name", "Nobody but you shall know this secret.")
            socket.put_raw('{"type": "secret"}')
            await socket.until("error", 2)
            await asyncio.sleep(1)

    run(scene())
    lines = written(capfd)
    assert '"utterance": "s0.1"' in lines
    assert "secret" not in lines
