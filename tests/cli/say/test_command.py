from __future__ import annotations

import asyncio
import io
import os
import signal
import stat
import subprocess
import sys
import wave
from pathlib import Path

import pytest
from fakes.gateway.protocol_server import FakeGateway, greeting_with
from fakes.waiting import DEADLINE_S, block_until
from voxgate.cli.main import main
from voxgate.cli.say.captions import Captions
from voxgate.client import Word


async def test_words_are_printed_as_sent() -> None:
    out = io.StringIO()
    captions = Captions(out)
    captions.add_text("Well, hello!\n")
    captions.schedule([Word("Well", 0, 4, 0, 300), Word("hello", 6, 11, 400, 700)], played_ms=500)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    captions.finish(played_all=False)
    assert out.getvalue() == "Well, hello! \n"


async def test_words_not_yet_played_are_not_printed() -> None:
    out = io.StringIO()
    captions = Captions(out)
    captions.add_text("one two")
    captions.schedule([Word("one", 0, 3, 0, 300), Word("two", 4, 7, 60_000, 61_000)], played_ms=0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    captions.finish(played_all=False)
    assert out.getvalue() == "one \n"


async def test_all_words_are_printed_when_everything_was_played() -> None:
    out = io.StringIO()
    captions = Captions(out)
    captions.add_text("one two.")
    captions.schedule([Word("two", 4, 7, 60_000, 61_000)], played_ms=0)
    captions.finish(played_all=True)
    assert out.getvalue() == "one two.\n"


async def test_words_are_counted_in_their_own_utterance() -> None:
    out = io.StringIO()
    captions = Captions(out)
    for text in ("one two. ", "six"):
        captions.begin_utterance()
        captions.add_text(text)
        captions.schedule([Word(text[:3], 0, 3, 0, 300)], played_ms=0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    captions.finish(played_all=False)
    assert out.getvalue() == "one two. six\n"


VOXGATE = [sys.executable, "-c", "import sys; from voxgate.cli.main import main; sys.exit(main())"]


@pytest.fixture
def player(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake aplay, alone on the PATH, that writes what it plays to the returned file."""
    played = tmp_path / "received"
    script = tmp_path / "bin" / "aplay"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\nexec /bin/cat >{played}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(script.parent))
    return played


def test_output_is_written_to_a_wav_file(
    gateway: FakeGateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "hello.wav"
    assert main(["say", "--url", gateway.url, "--output", str(file), "--voice", "whistle", "Hello", "you"]) == 0
    with wave.open(str(file)) as written:
        assert (written.getframerate(), written.getnchannels(), written.getnframes()) == (24_000, 1, 9 * 1920)
    start, text = gateway.received[:2]
    assert (start["voice"], start["pacing"], text["text"]) == ("whistle", "none", "Hello you")
    assert "0.7 s of speech, first audio after" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "codec"), [("a.mp3", "mp3"), ("a.OGG", "ogg_opus"), ("a.opus", "ogg_opus")])
def test_file_suffix_chooses_the_codec(gateway: FakeGateway, tmp_path: Path, name: str, codec: str) -> None:
    assert main(["say", "--url", gateway.url, "--output", str(tmp_path / name), "Hello"]) == 0
    assert gateway.received[0]["format"]["codec"] == codec
    assert (tmp_path / name).stat().st_size == 2 * 5 * 1920, "payloads are not written as received"


def test_unknown_suffix_is_refused_before_connecting(
    gateway: FakeGateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["say", "--url", gateway.url, "--output", str(tmp_path / "a.flac"), "Hello"]) == 1
    assert "must be one of .wav, .mp3, .ogg, .opus" in capsys.readouterr().err
    assert gateway.received == []


def test_dash_writes_wav_to_standard_output(gateway: FakeGateway) -> None:
    command = [*VOXGATE, "say", "--url", gateway.url, "--output", "-", "Hello"]
    ended = subprocess.run(command, capture_output=True, timeout=DEADLINE_S, check=False)
    assert gateway.received[0]["format"]["codec"] == "wav"
    assert (ended.returncode, len(ended.stdout)) == (0, 2 * 5 * 1920)


def test_full_standard_output_is_reported_in_one_line(gateway: FakeGateway) -> None:
    command = [*VOXGATE, "say", "--url", gateway.url, "--output", "-", "Hello " * 20]
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S, check=False)
    assert ended.returncode == 1
    assert ended.stderr == "voxgate say: -: No space left on device\n"


@pytest.mark.parametrize("file", ["/nowhere/hello.wav", "/dev/full"])
def test_unwritable_file_is_reported_in_one_line(gateway: FakeGateway, file: str) -> None:
    command = [*VOXGATE, "say", "--url", gateway.url, "--output", file, "Hello " * 20]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert ended.stderr.startswith(f"voxgate say: {file}: No s")  # "such file" and "space left"


def texts_spoken(gateway: FakeGateway) -> list[str]:
    return [utterance.text for utterance in gateway.utterances.values()]


@pytest.fixture
def short_utterances(gateway: FakeGateway) -> int:
    """The gateway's limit of characters per utterance."""
    gateway.max_characters = 40
    gateway.greeting = greeting_with(characters_per_utterance=40)
    return 40


LONG_TEXT = "This sentence has just 36 characters." + " And here come one, two, three more." * 4


def test_text_beyond_the_limit_goes_on_in_the_next_utterance(
    gateway: FakeGateway, short_utterances: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "long.wav"
    assert main(["say", "--url", gateway.url, "--output", str(file), LONG_TEXT]) == 0
    texts = texts_spoken(gateway)
    assert len(texts) == 5
    assert all(len(text) <= short_utterances and text.endswith(". ") for text in texts[:-1])
    assert "".join(texts) == LONG_TEXT
    with wave.open(str(file)) as written:
        assert written.getnframes() == len(LONG_TEXT) * 1920
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert f"{len(LONG_TEXT) * 0.08:.1f} s of speech" in errors


@pytest.mark.usefixtures("short_utterances")
def test_standard_input_beyond_the_limit_is_spoken(gateway: FakeGateway) -> None:
    text = "word and word " * 30
    command = [*VOXGATE, "say", "--url", gateway.url, "--output", "-"]
    ended = subprocess.run(command, input=text.encode(), capture_output=True, timeout=DEADLINE_S, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "".join(texts_spoken(gateway)) == text
    assert len(ended.stdout) == 2 * len(text) * 1920
    codecs = [message["format"]["codec"] for message in gateway.received if message["type"] == "start"]
    assert codecs[0] == "wav"
    assert set(codecs[1:]) == {"pcm"}, "another WAV header is among the samples"


@pytest.mark.usefixtures("short_utterances")
def test_one_player_plays_all_utterances(gateway: FakeGateway, player: Path) -> None:
    command = [*VOXGATE, "say", "--url", gateway.url, LONG_TEXT]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert ended.returncode == 0, ended.stderr
    assert player.stat().st_size == 2 * len(LONG_TEXT) * 1920
    assert ended.stdout == f"{LONG_TEXT}\n"


def interrupted(gateway: FakeGateway, text: str, utterances: int) -> str:
    """What the command prints at Ctrl-C, once it speaks and has begun so many utterances."""
    with subprocess.Popen(
        [*VOXGATE, "say", "--url", gateway.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as saying:
        assert saying.stdin is not None
        assert saying.stdout is not None
        assert saying.stderr is not None
        saying.stdin.write(text.encode())
        saying.stdin.flush()
        saying.stdout.read(1)
        block_until(lambda: len(gateway.utterances) == utterances)
        saying.send_signal(signal.SIGINT)
        assert saying.wait(DEADLINE_S) == 130
        return saying.stderr.read().decode()


@pytest.mark.usefixtures("player", "short_utterances")
def test_interrupt_ends_all_utterances(gateway: FakeGateway) -> None:
    output = interrupted(gateway, LONG_TEXT, utterances=5)  # the last one waits for the rest of standard input
    spoken, unspoken = output.rstrip("\n").split("\nspoken: ")[1].split("\nnot spoken: ")
    assert spoken + unspoken == LONG_TEXT


def test_refused_text_fails_the_command(
    gateway: FakeGateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway.max_characters = 4  # which the gateway has not announced
    file = tmp_path / "a.wav"
    assert main(["say", "--url", gateway.url, "--quiet", "--output", str(file), "Hello"]) == 1
    assert capsys.readouterr().err == "voxgate say: text was not spoken: about text_too_long\n"


def test_closed_standard_output_ends_the_command_quietly(gateway: FakeGateway) -> None:
    command = [*VOXGATE, "say", "--url", gateway.url, "--output", "-", "Hello " * 20]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as saying:
        assert saying.stdout is not None
        assert saying.stderr is not None
        saying.stdout.read(1000)
        saying.stdout.close()
        assert saying.wait(DEADLINE_S) == 141
        assert saying.stderr.read() == b""


@pytest.mark.parametrize("suffix", ["", ".wav", ".fifo"])
def test_named_pipe_gets_a_stream(gateway: FakeGateway, tmp_path: Path, suffix: str) -> None:
    pipe = tmp_path / f"pipe{suffix}"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reading:
        try:
            assert main(["say", "--url", gateway.url, "--output", str(pipe), "Hello"]) == 0
            assert len(reading.communicate(timeout=DEADLINE_S)[0]) == 2 * 5 * 1920
        finally:
            reading.kill()
    assert gateway.received[0]["format"]["codec"] == "wav"


def test_device_of_standard_output_gets_a_stream(gateway: FakeGateway) -> None:
    command = [*VOXGATE, "say", "--url", gateway.url, "--output", "/dev/stdout", "Hello"]
    ended = subprocess.run(command, capture_output=True, timeout=DEADLINE_S, check=False)
    assert (ended.returncode, len(ended.stdout)) == (0, 2 * 5 * 1920), ended.stderr
    assert gateway.received[0]["format"]["codec"] == "wav"


def test_layout_and_trim_silence_are_sent(gateway: FakeGateway, tmp_path: Path) -> None:
    options = ["--layout", "non_streaming", "--no-trim-silence", "--output", str(tmp_path / "a.wav")]
    assert main(["say", "--url", gateway.url, *options, "Hello"]) == 0
    assert (gateway.received[0]["layout"], gateway.received[0]["trim_silence"]) == ("non_streaming", False)


def test_audio_is_played_and_words_are_printed(gateway: FakeGateway, player: Path) -> None:
    ended = subprocess.run(
        [*VOXGATE, "say", "--url", gateway.url, "Hi."], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert player.stat().st_size == 2 * 3 * 1920
    assert ended.stdout == "Hi.\n"


def test_speech_starts_while_standard_input_is_open(gateway: FakeGateway, player: Path) -> None:
    with subprocess.Popen(
        [*VOXGATE, "say", "--url", gateway.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as saying:
        assert saying.stdin is not None
        assert saying.stdout is not None
        saying.stdin.write("Schön ".encode())
        saying.stdin.flush()
        assert saying.stdout.read(7) == "Schön ".encode()
        saying.stdin.write(b"day")
        saying.stdin.close()
        assert saying.wait(DEADLINE_S) == 0
    assert player.stat().st_size == 2 * 9 * 1920


@pytest.mark.usefixtures("player")
def test_interrupt_prints_spoken_and_unspoken_text(gateway: FakeGateway) -> None:
    output = interrupted(gateway, "A" * 500 + " end", utterances=1)
    assert "\nspoken: A" in output or "\nspoken: \n" in output
    assert output.rstrip().endswith("A end")
    interrupt = next(message for message in gateway.received if message["type"] == "interrupt")
    assert 0 <= interrupt["played_ms"] < 40_000


def test_every_voice_is_written_to_a_file_of_its_own(
    gateway: FakeGateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "hello.wav"
    assert main(["say", "--url", gateway.url, "--compare", "--output", str(file), "Hello", "you"]) == 0
    assert [message["voice"] for message in gateway.received if message["type"] == "start"] == ["hum", "whistle"]
    assert {utterance.text for utterance in gateway.utterances.values()} == {"Hello you"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hello_hum.wav", "hello_whistle.wav"]
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "hum:"
    assert lines[2] == "whistle:"


def test_standard_input_is_spoken_in_every_voice(gateway: FakeGateway, player: Path) -> None:
    command = [*VOXGATE, "say", "--url", gateway.url, "--compare"]
    ended = subprocess.run(command, input="Hi.", capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert ended.returncode == 0, ended.stderr
    assert [utterance.text for utterance in gateway.utterances.values()] == ["Hi.", "Hi."]
    assert ended.stdout == "Hi.\nHi.\n"
    assert player.stat().st_size == 2 * 3 * 1920  # the fake player keeps its last run


@pytest.mark.usefixtures("player")
def test_interrupt_ends_a_comparison(gateway: FakeGateway) -> None:
    with subprocess.Popen(
        [*VOXGATE, "say", "--url", gateway.url, "--compare", "A" * 500],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as saying:
        assert saying.stdout is not None
        saying.stdout.read(1)
        saying.send_signal(signal.SIGINT)
        assert saying.wait(DEADLINE_S) == 130
    assert [message["voice"] for message in gateway.received if message["type"] == "start"] == ["hum"]


@pytest.mark.parametrize("options", [["--voice", "hum"], ["--output", "-"]])
def test_comparison_of_one_voice_is_refused(
    gateway: FakeGateway, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    output = [] if "--output" in options else ["--output", os.devnull]
    assert main(["say", "--url", gateway.url, "--compare", *options, *output, "Hello"]) == 1
    assert "omit --voice and --output -" in capsys.readouterr().err
    assert gateway.received == []


def test_comparison_reports_an_unreachable_gateway(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["say", "--url", "ws://127.0.0.1:9", "--compare", "--output", "a.wav", "Hello"]) == 1
    assert "start one with 'voxgate serve'" in capsys.readouterr().err


def test_unreachable_gateway_is_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["say", "--url", "ws://127.0.0.1:9", "--output", os.devnull, "Hello"]) == 1
    output = capsys.readouterr().err
    assert output.count("\n") == 1
    assert "start one with 'voxgate serve'" in output


def test_missing_player_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["say", "Hello"]) == 1
    assert "use --output" in capsys.readouterr().err
