"""The command line of the evaluation."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import sys
from dataclasses import replace
from math import inf
from pathlib import Path

from voxgate.pipeline.checkpoint import load_checkpoint
from voxgate.pipeline.errors import CheckpointError, VoxgateError
from voxgate.pipeline.voice_config import load_voice_config

from . import report
from .plan import FULL, QUICK, EvaluationSize
from .run import Run, evaluate, read_sources, sweep
from .takes import TakeLog

ROOT = Path(__file__).parents[3]
DEMO = ROOT / "voices" / "demo"
BUILD = ROOT / "build" / "eval"


def main() -> int:
    parsed = _parser().parse_args()
    try:
        checkpoint = load_checkpoint(parsed.checkpoint)
    except (CheckpointError, OSError) as error:
        print(f"eval-voice: {error}", file=sys.stderr)
        return 1
    defaults = checkpoint.defaults
    temperature = defaults.temperature if parsed.temperature is None else parsed.temperature
    predictor = defaults.predictor_temperature if parsed.predictor_temperature is None else parsed.predictor_temperature
    folder = parsed.out or BUILD / fingerprint(parsed.checkpoint)
    run = Run(
        checkpoint=parsed.checkpoint,
        voices=tuple(parsed.voices.split(",")) if parsed.voices else None,
        extent=_extent(parsed),
        temperatures=(temperature, predictor),
        takes=TakeLog(folder / "takes.jsonl"),
        sources=TakeLog(BUILD / "sources.jsonl"),
        minutes=parsed.minutes,
        timings=not parsed.no_timings,
        encoder=parsed.encoder,
    )
    try:
        _perform(parsed, run, folder)
    except KeyboardInterrupt:
        print(f"\neval-voice: stopped; what was heard so far is in {folder}, and another run goes on", file=sys.stderr)
        return 130
    except (OSError, ValueError) as error:
        print(f"eval-voice: {error}", file=sys.stderr)
        return 1
    except ExceptionGroup as group:  # of the utterances under way, one stands for all
        if group.split((OSError, VoxgateError))[1] is not None:
            raise
        print(f"eval-voice: {group.exceptions[0]}; another run goes on from here", file=sys.stderr)
        return 1
    print(f"\nin {folder}", file=sys.stderr)
    return 0


def _perform(parsed: argparse.Namespace, run: Run, folder: Path) -> None:
    if parsed.sources:
        _show(report.sources_table(asyncio.run(read_sources(run))))
        return
    if parsed.sweep:
        table = report.sweep_table(asyncio.run(sweep(run, [float(value) for value in parsed.sweep.split(",")])))
        report.write(folder / "sweep.md", table)
        _show(table)
        return
    results = asyncio.run(evaluate(run))
    report.write(folder / "results.json", report.as_json(results))
    report.write(folder / "results.md", report.tables(results))
    _show(report.tables(results))
    if parsed.publish:
        from .publish import publish  # draws and encodes, which nothing else needs

        asyncio.run(publish(run, results, ROOT / "docs"))


def fingerprint(checkpoint: Path) -> str:
    """Of all that decides how a text sounds, the sampling aside: that is written down with every take."""
    rules = load_voice_config(checkpoint)
    sum_of = hashlib.sha256(repr((rules.text, rules.limits)).encode())
    for name in ("model.safetensors", "speech_tokenizer/model.safetensors", "config.json", "tokenizer.json"):
        sum_of.update((checkpoint / name).read_bytes())
    return sum_of.hexdigest()[:12]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/eval-voice",
        description="Measures the demo voice against its source voices. A run that was stopped goes on where it was.",
    )
    parser.add_argument("--quick", action="store_true", help="a fifth of the texts with one seed")
    parser.add_argument("--seeds", type=int, metavar="N", help="how often each sentence is said")
    parser.add_argument(
        "--minutes", type=float, default=inf, metavar="N", help="say no more after so many; another run goes on"
    )
    parser.add_argument("--checkpoint", type=Path, default=DEMO, metavar="DIR", help="another than the demo voice's")
    parser.add_argument("--voices", metavar="A,B", help="of the checkpoint's speaker table; left out: all")
    parser.add_argument("--temperature", type=float, metavar="T", help="the talker's; left out: the checkpoint's own")
    parser.add_argument("--predictor-temperature", type=float, metavar="T", help="the code predictor's, likewise")
    parser.add_argument("--sweep", metavar="T,T", help="compare all pairs of these temperatures on a few sentences")
    parser.add_argument("--sources", action="store_true", help="only the source voices")
    parser.add_argument(
        "--encoder", type=Path, metavar="FILE", help="of the recipe: also the sources through the codec"
    )
    parser.add_argument("--no-timings", action="store_true", help="leave out what means nothing on a busy machine")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where takes and tables go (build/eval/CHECKPOINT)")
    parser.add_argument(
        "--publish", action="store_true", help="write the figures, samples and pictures of docs/voice.md"
    )
    return parser


def _extent(parsed: argparse.Namespace) -> EvaluationSize:
    usual = QUICK if parsed.quick else FULL
    return usual if parsed.seeds is None else replace(usual, seeds=parsed.seeds)


def _show(text: str) -> None:
    print(text, flush=True)
