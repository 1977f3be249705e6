"""A cloned voice for `voxgate bench gpu --voice clone`, and its figures next to those of a named voice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from voxgate.loadtest.results import StepFigures
from voxgate.pipeline.checkpoint.checkpoint import load_checkpoint
from voxgate.pipeline.cloned_voice import ClonedVoice
from voxgate.pipeline.cloning.store import StoredVoice, VoiceStore

NAME = "clone"
SUFFIX = f" {NAME}"
"""Of the names of loads in the cloned voice."""
REFERENCE_FRAMES = 100
"""Eight seconds."""
REFERENCE_TEXT = (
    "The harbour was quiet that morning, and the boats had already left. Only the old man was still there, mending "
    "his nets and talking to the gulls."
)
"""What is read in about eight seconds: 27 words."""


def write_clone(checkpoint: Path, voices: Path) -> None:
    """Stores a voice with a reference and its text for a base checkpoint in the folder `voices`.

    Its vector and codes are random, as the weights are.
    """
    model, choice = load_checkpoint(checkpoint), np.random.default_rng(1)
    voice = ClonedVoice(
        NAME,
        choice.standard_normal(model.talker.hidden).astype(np.float32),
        REFERENCE_TEXT,
        choice.integers(0, model.codebook, (REFERENCE_FRAMES, model.groups)),
    )
    VoiceStore(voices).add(StoredVoice(voice))


def comparisons(loads: Sequence[StepFigures]) -> Iterator[str]:
    """A line for each load in the cloned voice whose counterpart in a named voice was measured too."""
    named = {load.load: load for load in loads}
    for clone in loads:
        base = named.get(clone.load.removesuffix(SUFFIX))
        if base is None or base is clone:
            continue
        share = f", {clone.audio_per_s / base.audio_per_s:.0%} of its audio s/s" if base.audio_per_s else ""
        yield (
            f"cloned voice at {base.load}: first audio p95 {clone.first_byte.p95:.1f} ms, named voice "
            f"{base.first_byte.p95:.1f} ms{share}"
        )
