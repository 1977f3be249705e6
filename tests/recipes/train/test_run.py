"""Starting all steps, reading their logs, and averaging the weights of runs."""

import argparse
import json
import sys
import tarfile
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from train import mean_weights, run
from train.optimisation import TimeBudget
from train.plots import FIGURES, curve, read_logs
from train.run_files import TrainingLog


def arguments(work, **changed):
    values = {
        "work": work,
        "talker_device": "cuda:0",
        "codec_device": "cuda:1",
        "codes_device": None,
        "codes_seconds": 130.0,
        "recover": None,
        "decoder_seconds": 540.0,
        "talker_seconds": 1000.0,
        "kokoro_options": "--hours 3",
        "codes_options": "",
        "decoder_options": "",
        "talker_options": "",
        "processes": 3,
        "steps": ",".join(run.STEPS),
        "until": None,
        "seed": 5,
    }
    return argparse.Namespace(**{**values, **changed})


def option(command, name):
    return command[command.index(name) + 1]


def test_steps_receive_device_and_seconds(tmp_path):
    lines = run.commands(arguments(tmp_path, talker_options="--rows 4 --eager"))
    assert tuple(lines) == run.STEPS
    assert [option(lines[step], "--device") for step in run.STEPS[1:]] == ["cuda:0", "cuda:0", "cuda:1", "cuda:0"]
    assert [option(lines[step], "--seconds") for step in run.STEPS[2:]] == ["130.0", "540.0", "1000.0"]
    assert option(lines["speech"], "--processes") == "3"
    assert option(lines["kokoro"], "--hours") == "3"
    assert option(lines["talker"], "--rows") == "4"
    assert lines["talker"][-1] == "--eager"
    assert all(option(lines[step], "--seed") == "5" for step in run.STEPS[1:])


def test_tokenizer_of_a_finished_voice_is_learnt_again(tmp_path):
    lines = run.commands(
        arguments(tmp_path, recover=[tmp_path / "spoken.safetensors", tmp_path / "decoder.safetensors"])
    )
    at = lines["codes"].index("train.codec.recover_tokenizer")
    assert lines["codes"][at + 1 : at + 4] == [
        str(tmp_path), str(tmp_path / "spoken.safetensors"), str(tmp_path / "decoder.safetensors")
    ]  # fmt: skip  # one line
    assert option(lines["codes"], "--seconds") == "130.0"


def test_decoder_and_talker_end_at_given_time(tmp_path):
    lines = run.commands(arguments(tmp_path, until=1234.5))
    assert [option(lines[step], "--until") for step in ("decoder", "talker")] == ["1234.5", "1234.5"]
    assert TimeBudget(100.0, time.time() + 10).seconds == pytest.approx(10, abs=0.5)
    assert TimeBudget(5.0, time.time() + 10).seconds == 5.0


def test_existing_weights_are_not_overwritten(tmp_path):
    (tmp_path / "decoder.safetensors").touch()
    with pytest.raises(SystemExit, match=r"decoder\.safetensors exists already"):
        run.start(arguments(tmp_path))
    assert not (tmp_path / "pids.json").exists()


def test_status_shows_last_log_line_of_each_step(tmp_path, capsys):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "codes.log").write_text("first\nupdate 400\n")
    unused_pid = 2**22 + 1  # above the largest process id
    (tmp_path / "pids.json").write_text(json.dumps({"started": 0, "pids": {"codes": unused_pid, "talker": unused_pid}}))
    run.status(tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["codes", "ended:", "update", "400"]
    assert lines[2].split() == ["talker", "ended:"]


def test_logs_are_read_from_folder_and_archive(tmp_path):
    progress = TrainingLog(tmp_path / "logs" / "talker.jsonl")
    progress.write(compiled_s=3.0)
    progress.write(seconds=1.0, first=6.0)
    progress.write(seconds=2.0, unseen_first=5.5)
    progress.write(seconds=3.0, first=4.0)
    with tarfile.open(tmp_path / "logs.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "logs" / "talker.jsonl", arcname="talker.jsonl")
    logs = read_logs(tmp_path / "logs")
    assert read_logs(tmp_path / "logs.tar.gz") == logs
    assert curve(logs["talker"], "first") == ([1.0, 3.0], [6.0, 4.0])
    assert curve(logs["talker"], "unseen_first") == ([2.0], [5.5])
    assert set(FIGURES) == set(run.STEPS[2:])


def test_curve_of_continued_run_continues():
    entries = [{"seconds": 1.0, "first": 6.0}, {"seconds": 9.0, "done": 40}, {"seconds": 0.5, "first": 4.0}]
    assert curve(entries, "first") == ([1.0, 9.5], [6.0, 4.0])


def test_weights_of_runs_are_averaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for source_run, value in (("a", 1.0), ("b", 2.0), ("c", 6.0)):
        (tmp_path / source_run).mkdir()
        for part, name in enumerate(("head", "body")):
            weights = {name: torch.full((2, 3), value + part).half()}
            save_file(weights, tmp_path / source_run / f"talker.{part}.safetensors")
    folders = [str(tmp_path / source_run) for source_run in "abc"]
    monkeypatch.setattr(sys, "argv", ["mean_weights", str(tmp_path / "out"), *folders])

    mean_weights.main()

    made = load_file(tmp_path / "out" / "talker.safetensors")
    assert {name: value.dtype for name, value in made.items()} == {"head": torch.float16, "body": torch.float16}
    assert made["head"].tolist() == [[3.0] * 3] * 2
    assert made["body"].tolist() == [[4.0] * 3] * 2


def test_mean_of_different_models_is_refused() -> None:
    with pytest.raises(ValueError, match="same tensors"):
        mean_weights.mean([{"a": torch.zeros(2)}, {"a": torch.zeros(3)}])
