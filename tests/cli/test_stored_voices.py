from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from fakes.deterministic import noise
from fakes.pipeline.base_checkpoint import write_demo_base
from voxgate.cli.main import main
from voxgate.pipeline.cloning.store import VoiceStore

DEMO = Path(__file__).parents[2] / "voices" / "demo"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_demo_base(tmp_path_factory.mktemp("checkpoint") / "base", DEMO)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VoiceStore:
    monkeypatch.setenv("VOXGATE_VOICES_DIR", str(tmp_path / "voices"))
    return VoiceStore(tmp_path / "voices")


@pytest.fixture
def wav(tmp_path: Path) -> Path:
    soundfile.write(tmp_path / "ada.wav", noise(48_000), 24_000)
    return tmp_path / "ada.wav"


def voices(*arguments: object) -> int:
    return main(["voices", *map(str, arguments)])


def test_voice_is_made_from_a_recording(
    store: VoiceStore, base: Path, wav: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--language", "English", "--language", "german", "--description", "Calm.", "--checkpoint", base)
    assert voices("add", "Ada", "--audio", wav, *given) == 0
    assert capsys.readouterr().out.startswith("stored ada (speaker vector) in ")
    stored = store.load("ada")
    assert stored.voice.languages == ("english", "german")
    assert stored.origin.checkpoint == str(base)
    assert voices("list") == 0
    assert capsys.readouterr().out == f"ada  Calm.; speaker vector; recording; {base}\n"


def test_recording_with_text_becomes_context(
    store: VoiceStore, base: Path, wav: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(wav.read_bytes())))
    assert voices("add", "ada", "--audio", "-", "--text", "A rush of air.", "--checkpoint", base) == 0
    assert "recording of 2.6 s as context" in capsys.readouterr().out
    assert store.load("ada").voice.reference_text == "A rush of air."
    assert voices("list", "--json") == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert (entry["name"], entry["text"], entry["vector_width"]) == ("ada", "A rush of air.", 320)


def test_voices_are_made_from_vectors_and_blends(
    store: VoiceStore, base: Path, wav: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "v.npy", np.ones(320))
    assert voices("add", "ada", "--audio", wav, "--checkpoint", base) == 0
    assert voices("add", "flat", "--vector", tmp_path / "v.npy", "--checkpoint", base) == 0
    assert voices("blend", "both", "ada", "flat", "--weight", "0.3") == 0
    assert store.load("both").origin.source == "blend of ada and flat at 0.3"
    assert voices("remove", "FLAT") == 0
    assert store.names() == ["ada", "both"]
    assert voices("remove", "flat") == 1
    assert "no voice 'flat'" in capsys.readouterr().err


def test_failure_is_reported_and_nothing_is_stored(
    store: VoiceStore, base: Path, wav: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "short.npy", np.ones(8))
    soundfile.write(tmp_path / "silent.wav", np.zeros(48_000), 24_000)
    for arguments, words in (
        (("add", "a b", "--audio", wav, "--checkpoint", base), "a voice's name must have"),
        (("add", "ada", "--audio", tmp_path / "silent.wav", "--checkpoint", base), "louder than"),
        (("add", "ada", "--audio", tmp_path / "none.wav", "--checkpoint", base), "none.wav: No such file"),
        (("add", "ada", "--audio", wav, "--checkpoint", DEMO), "only Base models"),
        (("add", "ada", "--audio", wav, "--checkpoint", tmp_path / "none"), "no checkpoint folder"),
        (("add", "ada", "--vector", tmp_path / "short.npy", "--checkpoint", base), "got 8"),
        (("blend", "both", "ada", "bob"), "no voice 'ada'"),
    ):
        assert voices(*arguments) == 1, arguments
        assert words in capsys.readouterr().err
    assert store.names() == []


def test_existing_name_is_refused_before_any_work(
    store: VoiceStore, base: Path, wav: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert voices("add", "ada", "--audio", wav, "--checkpoint", base) == 0
    assert voices("add", "ada", "--audio", "/nowhere", "--checkpoint", "/nowhere") == 1
    assert "already" in capsys.readouterr().err
    assert store.names() == ["ada"]


def test_settings_come_from_flags_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert voices("list", "--voices-dir", tmp_path / "mine") == 0
    assert capsys.readouterr().out == f"no voices in {tmp_path / 'mine'}\n"
    (tmp_path / "gateway.toml").write_text(f'voices_dir = "{tmp_path / "other"}"')
    assert voices("list", "--config", tmp_path / "gateway.toml") == 0
    assert capsys.readouterr().out == f"no voices in {tmp_path / 'other'}\n"
    (tmp_path / "gateway.toml").write_text("voices_folder = 1")
    assert voices("list", "--config", tmp_path / "gateway.toml") == 2
    assert "unknown option" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [("add", "ada"), ("add", "ada", "--audio", "a", "--vector", "b"), ("sing",)])
def test_wrong_usage_exits_with_status_2(arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as ended:
        voices(*arguments)
    assert ended.value.code == 2
