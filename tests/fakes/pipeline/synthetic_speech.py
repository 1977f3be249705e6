"""Synthetic speech: each phone of a word is a sound of its class, with a varying length."""

from __future__ import annotations

import random
import re

import numpy as np
from voxgate.codecs.pcm import Pcm
from voxgate.pipeline.alignment.coarse import PhoneClass, class_spans

SOURCE = "the quick brown fox jumps, over the lazy dog. And then it sleeps a little."


def tone(ms: float, hz: int = 220, level: float = 0.3) -> Pcm:
    return (level * np.sin(2 * np.pi * hz * np.arange(round(ms * 24)) / 24_000)).astype(np.float32)


def silence(ms: float) -> Pcm:
    return np.zeros(round(ms * 24), np.float32)


def hiss(ms: float) -> Pcm:
    noise = np.random.default_rng(3).standard_normal(round(ms * 24) + 1)
    return (0.05 * np.diff(noise)).astype(np.float32)


def sound(kind: PhoneClass, ms: float) -> Pcm:
    match kind:
        case PhoneClass.FRICATIVE:
            return hiss(ms)
        case PhoneClass.STOP:
            return np.concatenate([silence(0.7 * ms), hiss(0.3 * ms)])
        case PhoneClass.SONORANT:
            return tone(ms, 130, 0.2)
        case _:
            return tone(ms, 400)


def spoken(source: str, *, stretch: float = 1.0, uneven: float = 0.0, pause_ms: float = 300) -> tuple[Pcm, list[float]]:
    """Speech for `source`, and the end of each word in ms. `uneven`: largest relative change of a phone's length."""
    chance = random.Random(1)
    audio: list[Pcm] = []
    ends: list[float] = []
    for word in source.split():
        audio += [
            sound(p.phone_class, p.ms * stretch * chance.uniform(1 - uneven, 1 + uneven)) for p in class_spans(word)
        ]
        ends.append(sum(map(len, audio)) / 24)
        if re.search(r"\W$", word):
            audio.append(silence(pause_ms))
    return np.concatenate(audio), ends
