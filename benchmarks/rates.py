"""Quality of stretched speech by rate: `python -m voxgate.benchmarks.rates RECORDING...`.

Recordings are of rate 1, for example `docs/sounds/*_voice.ogg` or files of `voxgate say --output`. The quality is
predicted by DistillMOS: `pip install distillmos==0.9.1`, in an environment with numpy, soundfile and soxr.
"""

from __future__ import annotations

import argparse
import sys
import time
import types
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr
from voxgate.codecs.pcm import FRAME_SAMPLES, SAMPLE_RATE_HZ, Pcm
from voxgate.pipeline.prosody.time_stretch import TimeStretch

RATES = (0.5, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0)
MOS_RATE_HZ = 16_000
"""Sample rate that DistillMOS listens at."""


def stretch(pcm: Pcm, rate: float) -> Pcm:
    """Returns the whole of `pcm` at that rate, made frame by frame."""
    stretching = TimeStretch(rate)
    parts = [stretching.push(pcm[at : at + FRAME_SAMPLES]) for at in range(0, len(pcm), FRAME_SAMPLES)]
    return np.concatenate([*parts, stretching.finish()])


def quality_table(recordings: Sequence[Pcm], rates: Iterable[float], predict: Callable[[Pcm], float]) -> str:
    """Returns a Markdown table: predicted quality (1 to 5, mean, least) and CPU time per second of speech, by rate.

    `predict` gets a recording at MOS_RATE_HZ.
    """
    seconds = sum(map(len, recordings)) / SAMPLE_RATE_HZ
    lines = ["| rate | MOS | least | CPU ms per s |", "|---|---|---|---|"]
    for rate in rates:
        began_s = time.process_time()
        stretched = [stretch(pcm, rate) for pcm in recordings]
        cpu_ms = (time.process_time() - began_s) * 1000 / seconds
        scores = [predict(soxr.resample(pcm, SAMPLE_RATE_HZ, MOS_RATE_HZ)) for pcm in stretched]
        lines.append(f"| {rate:g} | {np.mean(scores):.2f} | {min(scores):.2f} | {cpu_ms:.1f} |")
    return "\n".join(lines)


def load_recording(path: Path) -> Pcm:
    """Reads a recording as float32 [n] at 24 kHz."""
    pcm, rate_hz = soundfile.read(path, dtype="float32")
    resampled: Pcm = soxr.resample(pcm, rate_hz, SAMPLE_RATE_HZ)
    return resampled


def load_predictor() -> Callable[[Pcm], float]:
    """Loads DistillMOS, whose weights are in its package."""
    import torch

    # It imports torchaudio for a function that is not used here.
    sys.modules.setdefault("torchaudio", types.ModuleType("torchaudio"))
    import distillmos

    model: Any = distillmos.ConvTransformerSQAModel().eval()

    def predict(pcm: Pcm) -> float:
        with torch.no_grad():
            return float(model(torch.from_numpy(pcm)[None]))

    return predict


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m voxgate.benchmarks.rates", description=__doc__)
    parser.add_argument("recordings", type=Path, nargs="+", metavar="RECORDING")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parsed = parser.parse_args()
    print(quality_table([load_recording(path) for path in parsed.recordings], parsed.rates, load_predictor()))


if __name__ == "__main__":
    main()
