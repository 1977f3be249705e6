"""The command line of the evaluation."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import sys
from dataclasses import replace
from math import inf
from pathlib import Path

from voxgate.pipeline.checkpoint.checkpoint import load_checkpoint
from voxgate.pipeline.checkpoint.voice_config import load_voice_config
from voxgate.pipeline.errors import CheckpointError, VoxgateError

from . import report
from .measurements import MeasurementLog
from .plan import FULL, QUICK, WIDE, EvaluationSize
from .run import Run, evaluate, read_sources, sweep
from .sources import Sources

ROOT = Path(__file__).parents[3]
DEMO = ROOT / "voices" / "demo"
BUILD = ROOT / "build" / "eval"


def main() -> int:
    """Run the command; returns its exit status."""
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
        size=_size(parsed),
        temperatures=(temperature, predictor),
        measurements=MeasurementLog(folder / "judged.jsonl"),
        sources=Sources(parsed.cache),
        source_measurements=MeasurementLog(parsed.cache / "judged.jsonl"),
        minutes=parsed.minutes,
        timings=not parsed.no_timings,
        encoder=parsed.encoder,
    )
    try:
        _perform(parsed, run, folder)
    except KeyboardInterrupt:
        print(f"\neval-voice: stopped; measurements so far are in {folder}, run it again to continue", file=sys.stderr)
        return 130
    except (OSError, ValueError) as error:
        print(f"eval-voice: {error}", file=sys.stderr)
        return 1
    except ExceptionGroup as group:  # one of the concurrent utterances' errors is enough
        if group.split((OSError, VoxgateError))[1] is not None:
            raise
        print(f"eval-voice: {group.exceptions[0]}; run it again to continue", file=sys.stderr)
        return 1
    print(f"\nresults in {folder}", file=sys.stderr)
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
        from .publish import publish  # needs Pillow, as nothing else

        asyncio.run(publish(run, results, ROOT))


def fingerprint(checkpoint: Path) -> str:
    """A hash of everything that determines speech but sampling, which is part of each measurement's key."""
    rules = load_voice_config(checkpoint)
    digest = hashlib.sha256(repr((rules.text, rules.limits)).encode())
    for name in ("model.safetensors", "speech_tokenizer/model.safetensors", "config.json", "tokenizer.json"):
        digest.update((checkpoint / name).read_bytes())
    return digest.hexdigest()[:12]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/eval-voice",
        description="Compares the demo voice with its source voices. A stopped run continues when started again.",
    )
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument("--quick", action="store_true", help="a fifth of the texts")
    extent.add_argument("--wide", action="store_true", help="all texts; opinion scores and three seeds of a fifth")
    parser.add_argument("--seeds", type=int, metavar="N", help="utterances of each sentence")
    parser.add_argument(
        "--minutes",
        type=float,
        default=inf,
        metavar="N",
        help="start no more utterances after N minutes; a later run continues",
    )
    parser.add_argument(
        "--checkpoint", type=Path, default=DEMO, metavar="DIR", help="checkpoint folder (default: the demo voice)"
    )
    parser.add_argument("--voices", metavar="A,B", help="voices of the checkpoint (default: all)")
    parser.add_argument(
        "--temperature", type=float, metavar="T", help="temperature of the talker (default: the checkpoint's)"
    )
    parser.add_argument("--predictor-temperature", type=float, metavar="T", help="temperature of the code predictor")
    parser.add_argument("--sweep", metavar="T,T", help="compare all pairs of temperatures on some sentences")
    parser.add_argument("--sources", action="store_true", help="measure the source voices only: those of --voices")
    parser.add_argument(
        "--encoder", type=Path, metavar="FILE", help="the recipe's tokenizer weights: measure the codec alone too"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=BUILD / "sources",
        metavar="DIR",
        help="the source voices, their readings and figures, which serve all checkpoints (default: build/eval/sources)",
    )
    parser.add_argument("--no-timings", action="store_true", help="omit figures that a busy machine distorts")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder of the results (default: build/eval/CHECKPOINT)"
    )
    parser.add_argument(
        "--publish",
        action="store_true",
        help="write docs/voice.md's figures, samples and images, and the README's links",
    )
    return parser


def _size(parsed: argparse.Namespace) -> EvaluationSize:
    default = QUICK if parsed.quick else WIDE if parsed.wide else FULL
    return default if parsed.seeds is None else replace(default, seeds=parsed.seeds)


def _show(text: str) -> None:
    print(text, flush=True)
