"""Starts all steps at once in the background. `python -m train.run W --talker-device cuda:0 --codec-device cuda:1`

The models train on the speech that exists so far; the tokenizer waits
for every voice, talker and decoder wait for the tokenizer. The steps continue after
this command has ended: `--status` shows their progress, `--keep-speech` frees CPU cores, `--stop` ends them. A step
that ended early can be continued on its own (`python -m train.talker.train_talker W --start W/talker.safetensors`).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

STEPS = ("speech", "kokoro", "codes", "decoder", "talker")


def commands(args: argparse.Namespace) -> dict[str, list[str]]:
    """The command line of each step."""
    work = str(args.work)
    module = [sys.executable, "-u", "-m"]
    codes_device = args.codes_device or args.talker_device
    until = [] if args.until is None else ["--until", str(args.until)]
    tokenizer = ["train.codec.train_tokenizer", work]
    if args.recover is not None:
        tokenizer = ["train.codec.recover_tokenizer", work, *map(str, args.recover)]
    return {
        "speech": [*module, "train.speech.synthesis", work, "--processes", str(args.processes)],
        "kokoro": [
            *[*module, "train.speech.kokoro", work, "--device", args.codes_device or args.talker_device],
            *["--seed", str(args.seed), *args.kokoro_options.split()],
        ],
        "codes": [
            *[*module, *tokenizer, "--seconds", str(args.codes_seconds)],
            *["--device", codes_device, "--seed", str(args.seed), *args.codes_options.split()],
        ],
        "decoder": [
            *[*module, "train.codec.train_decoder", work, "--seconds", str(args.decoder_seconds)],
            *["--device", args.codec_device, "--seed", str(args.seed), *until, *args.decoder_options.split()],
        ],
        "talker": [
            *[*module, "train.talker.train_talker", work, "--seconds", str(args.talker_seconds)],
            *["--device", args.talker_device, "--seed", str(args.seed), *until, *args.talker_options.split()],
        ],
    }


def start(args: argparse.Namespace) -> None:
    """Start the steps. Exits if W already has their weights."""
    logs = args.work / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    steps = args.steps.split(",")
    for name in {"codes", "decoder", "talker"}.intersection(steps):
        weights = args.work / f"{name}.safetensors"
        if weights.exists():
            raise SystemExit(f"{weights} exists already: start the missing steps one by one")
    before = args.work / "pids.json"
    pids = json.loads(before.read_text("utf-8"))["pids"] if before.exists() else {}
    here = Path(__file__).resolve().parent.parent
    for name in steps:
        one_thread = {"OMP_NUM_THREADS": "1" if name in ("speech", "kokoro") else "2", "PYTHONUNBUFFERED": "1"}
        with (logs / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                commands(args)[name],
                cwd=here,
                env={**os.environ, **one_thread, "TOKENIZERS_PARALLELISM": "true"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        pids[name] = process.pid
    before.write_text(json.dumps({"started": time.time(), "pids": pids}), encoding="utf-8")
    print(f"started {args.steps}; logs in {logs}")


def _alive(pid: int) -> bool:
    try:
        # A child of this process that has ended remains as a zombie.
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def status(work: Path) -> None:
    """Print whether each step runs, and the last line of its log."""
    about = json.loads((work / "pids.json").read_text(encoding="utf-8"))
    print(f"{time.time() - about['started']:.0f} s since the start; {len(list(work.glob('speech/*.json')))} chunks")
    for name, pid in about["pids"].items():
        log = work / "logs" / f"{name}.log"
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        print(f"{name:8} {'runs' if _alive(pid) else 'ended'}: {lines[-1][:200] if lines else ''}")


def keep_speech(work: Path, processes: int) -> None:
    """Stop all but `processes` of the processes that synthesise speech with SIGSTOP, to free CPU cores."""
    leader = json.loads((work / "pids.json").read_text(encoding="utf-8"))["pids"]["speech"]
    workers = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            if parent == leader:
                workers.append(int(entry.name))
    for pid in sorted(workers)[processes:]:
        os.kill(pid, signal.SIGSTOP)
    print(f"{min(processes, len(workers))} of {len(workers)} processes continue")


def stop(work: Path) -> None:
    """End the steps with their child processes; each step leads a process group."""
    for pid in json.loads((work / "pids.json").read_text(encoding="utf-8"))["pids"].values():
        if _alive(pid):
            os.killpg(pid, signal.SIGTERM)
            os.killpg(pid, signal.SIGCONT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--status", action="store_true")
    parser.add_argument("--stop", action="store_true")
    parser.add_argument("--steps", default=",".join(STEPS), help="steps to start")
    parser.add_argument("--until", type=float, help="decoder and talker end at this time, in seconds since 1970")
    parser.add_argument("--keep-speech", type=int, metavar="N", help="stop all but N speech processes")
    parser.add_argument("--talker-device", default="cuda:0")
    parser.add_argument("--codec-device", default="cuda:0")
    parser.add_argument("--codes-device", help="device of the tokenizer (default: the talker's)")
    parser.add_argument("--codes-seconds", type=float, default=130)
    parser.add_argument(
        "--recover", type=Path, nargs=2, metavar=("SPOKEN", "DECODER"), help="learn the tokenizer of these again"
    )
    parser.add_argument("--decoder-seconds", type=float, default=540)
    parser.add_argument("--talker-seconds", type=float, default=1000)
    parser.add_argument("--kokoro-options", default="", help="more options of train.speech.kokoro, as one string")
    parser.add_argument(
        "--codes-options", default="", help="more options of train.codec.train_tokenizer, as one string"
    )
    parser.add_argument(
        "--decoder-options", default="", help="more options of train.codec.train_decoder, as one string"
    )
    parser.add_argument("--talker-options", default="", help="more options of train.talker.train_talker, as one string")
    parser.add_argument("--processes", type=int, default=14, help="number of speech processes")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.work = args.work.resolve()
    if args.status:
        status(args.work)
    elif args.keep_speech is not None:
        keep_speech(args.work, args.keep_speech)
    elif args.stop:
        stop(args.work)
    else:
        start(args)


if __name__ == "__main__":
    main()
