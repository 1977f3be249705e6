"""Log lines: their content, and writing them to a reader that may stop."""

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
from voxgate.gateway.observability.log import BatchWriter, BoundedQueueHandler, DefectLog


@pytest.fixture(autouse=True)
def _restored_logging(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(log, "FLUSH_TIMEOUT_S", DEADLINE_S)
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


KEY = "vg_aVeryLongKey-with_43_characters-of-base64url"
TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZGEifQ.c2lnbmF0dXJl-_"


@pytest.mark.parametrize("style", ["text", "json"])
def test_keys_and_tokens_are_removed_from_messages_fields_and_tracebacks(
    style: str, capfd: pytest.CaptureFixture[str]
) -> None:
    log.configure("info", style)
    logger = logging.getLogger("voxgate.test")
    logger.info("GET /v1/speech?a=1&token=%s&b=2 HTTP/1.1", TOKEN)
    logger.info("GET /v1/speech?authorization=own-key-of-a-user HTTP/1.1")
    logger.info("a request", extra={"path": f"/v1/speech?token={KEY}", "headers": {"xi-api-key": KEY}})
    try:
        raise ValueError(f"invalid HTTP header: b'Authorization: Bearer {KEY}'")
    except ValueError:
        logger.exception("bad")
    logger.info("Authorization: Bearer own-key-of-a-user")
    lines = written(capfd)
    assert not [secret for secret in (KEY, KEY[-8:], TOKEN, "own-key") if secret in lines]
    assert lines.count("***") == 6
    assert "&b=2 HTTP/1.1" in lines


def test_other_text_is_not_redacted() -> None:
    for text in ("a token was refused", "key of vg_x", "token=3 of 4", "the bearer of news", "session a-1.2 key=ada"):
        assert log.redact(text) == text


def test_text_lines_carry_the_ids_without_the_attributes_of_vllm(capfd: pytest.CaptureFixture[str]) -> None:
    log.configure("warning", "text")
    # Not by `extra`: a process that has imported vLLM refuses names that vLLM adds to its records.
    record = logging.LogRecord("voxgate.test", logging.WARNING, "", 0, "hello", (), None)
    vars(record).update(session="s1", vllm_process_name="x")
    logging.getLogger("voxgate.test").handle(record)
    assert written(capfd).endswith("WARNING voxgate.test: hello session=s1\n")


def test_text_of_users_is_not_logged(capfd: pytest.CaptureFixture[str]) -> None:
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
    """A pipe of one page, as standard error of a gateway whose parent process reads slowly."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        fcntl.fcntl(self.write_end, fcntl.F_SETPIPE_SZ, 4096)

    def read(self) -> str:
        assert select.select([self.read_end], [], [], DEADLINE_S)[0], "nothing was written"
        return os.read(self.read_end, 65_536).decode()

    def read_until(self, words: str) -> str:
        text = ""
        while words not in text:
            text += self.read()
        return text

    def close(self) -> None:
        for descriptor in (self.read_end, self.write_end):
            with suppress(OSError):
                os.close(descriptor)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


def emit(handler: logging.Handler, words: str) -> None:
    handler.handle(logging.LogRecord("test", logging.INFO, "", 0, words, (), None))


def test_lines_keep_their_order(pipe: Pipe) -> None:
    handler = BoundedQueueHandler(10)
    BatchWriter(handler, pipe.write_end).start()
    for words in ("one", "two", "a lone \ud800"):
        emit(handler, words)
    assert pipe.read_until("ud800") == "one\ntwo\na lone \\ud800\n"


def test_records_beyond_the_capacity_are_counted_and_reported(pipe: Pipe) -> None:
    handler = BoundedQueueHandler(10)
    for number in range(1000):
        emit(handler, f"line {number}")
    BatchWriter(handler, pipe.write_end).start()
    lines = pipe.read_until("were lost").splitlines()
    assert lines[:-1] == [f"line {number}" for number in range(10)]
    assert lines[-1].startswith("990 log records were lost")
    assert handler.lost == 0


def test_a_stopped_reader_blocks_no_caller_and_every_record_is_written_or_counted(pipe: Pipe) -> None:
    handler = BoundedQueueHandler(100)
    BatchWriter(handler, pipe.write_end).start()
    for number in range(1000):
        emit(handler, f"{number:04}" + "x" * 95)
    text = ""
    while True:  # losses after the last report are still counted by the handler
        reported = sum(int(line.split()[0]) for line in text.splitlines() if "were lost" in line)
        if text.count("x" * 95) + reported + handler.lost == 1000:
            break
        text += pipe.read()
    assert text.startswith("0000x")


def test_a_closed_reader_is_no_error(pipe: Pipe) -> None:
    handler = BoundedQueueHandler(10)
    BatchWriter(handler, pipe.write_end).start()
    os.close(pipe.read_end)
    emit(handler, "into a pipe without a reader")
    handler.flush()
    os.close(pipe.write_end)
    emit(handler, "into a closed descriptor")
    handler.flush()
    assert handler.lost == 2


def test_a_record_that_cannot_be_formatted_is_counted_and_raises_nothing() -> None:
    handler = BoundedQueueHandler(10)
    handler.handle(logging.LogRecord("test", logging.INFO, "", 0, "%d", ("no number",), None))
    assert handler.lost == 1


def test_records_of_plain_values_are_formatted_by_the_writer(monkeypatch: pytest.MonkeyPatch, pipe: Pipe) -> None:
    handler = BoundedQueueHandler(10)
    formatted: list[str] = []
    monkeypatch.setattr(handler, "format", lambda record: formatted.append(record.getMessage()) or record.getMessage())
    changing = {"held": 1}
    for fields in ({"session": "s1", "code": None, "position": 2}, {"changes": changing}):
        record = logging.LogRecord("test", logging.INFO, "", 0, "fields of %s", (list(fields),), None)
        vars(record).update(fields)
        handler.handle(record)
    assert formatted == ["fields of ['changes']"]
    BatchWriter(handler, pipe.write_end).start()
    assert pipe.read_until("'changes'") == "fields of ['session', 'code', 'position']\nfields of ['changes']\n"


def test_a_record_that_the_writer_cannot_format_is_counted(pipe: Pipe) -> None:
    handler = BoundedQueueHandler(10)
    handler.setFormatter(log._TextFormatter())
    BatchWriter(handler, pipe.write_end).start()
    record = logging.LogRecord("test", logging.INFO, "", 0, "a number", (), None)
    vars(record).update(number=10**5000)  # the interpreter refuses to print so many digits
    handler.handle(record)
    assert ": 1 log records were lost" in pipe.read_until("were lost")


def test_lines_are_joined_into_writes_that_a_pipe_keeps_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[bytes] = []
    monkeypatch.setattr(os, "write", lambda _, data: writes.append(data) or len(data))
    handler = BoundedQueueHandler(200)
    lines = [f"{number:03}" + "x" * 96 for number in range(100)] + ["y" * 5000, "the last"]
    for line in lines:
        emit(handler, line)
    BatchWriter(handler, -1).start()
    handler.flush()
    assert b"".join(writes).decode().splitlines() == lines
    assert [len(data) for data in writes] == [4000, 4000, 2000, 5001, 9]


def test_a_flush_waits_until_all_lines_are_written(pipe: Pipe) -> None:
    handler = BoundedQueueHandler(10)
    BatchWriter(handler, pipe.write_end).start()
    emit(handler, "the last words")
    handler.flush()
    assert os.read(pipe.read_end, 100) == b"the last words\n"


def test_flush_under_the_handlers_lock_writes_all_lines_and_the_number_of_lost_ones(pipe: Pipe) -> None:
    handler = BoundedQueueHandler(2)
    for words in ("one", "two", "lost"):
        emit(handler, words)
    handler.acquire()  # as `logging.shutdown` does before it flushes
    try:
        BatchWriter(handler, pipe.write_end).start()
        handler.flush()
        assert not handler.lines.unfinished_tasks
    finally:
        handler.release()
    lines = os.read(pipe.read_end, 4096).decode().splitlines()
    assert lines[:2] == ["one", "two"]
    assert lines[2].startswith("1 log records were lost")


def test_a_stopped_writer_has_written_all_lines(pipe: Pipe) -> None:
    handler = BoundedQueueHandler(10)
    writer = BatchWriter(handler, pipe.write_end)
    emit(handler, "one")
    emit(handler, "two")
    writer.start()
    writer.stop()
    assert os.read(pipe.read_end, 100) == b"one\ntwo\n"


def test_repeated_defects_are_counted_instead_of_logged(caplog: pytest.LogCaptureFixture) -> None:
    defects = DefectLog(logging.getLogger("voxgate.test"))
    for now_s in (0.0, 0.1, 0.9, 1.0, 30.0, 60.0):
        defects.report("a request failed", ZeroDivisionError("the client's text"), now_s)
    lines = [(record.getMessage(), bool(record.exc_info), record.__dict__["omitted"]) for record in caplog.records]
    said = "a request failed"
    assert lines == [(said, True, None), (said, False, 2), (said, False, None), (said, True, None)]
    assert {record.__dict__["error"] for record in caplog.records} == {"ZeroDivisionError"}
