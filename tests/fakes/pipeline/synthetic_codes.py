"""Synthetic codes: a voice in which every letter is one phone and every phone is one code."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from voxgate.codecs.pcm import FRAME_MS, FRAME_SAMPLES
from voxgate.pipeline.alignment.phones import HOPS_PER_FRAME, PHONE_TABLE_FILE, PhoneScorer, PhoneTable, Pronunciation

LETTERS = "abcdefghijklmnopqrstuvwxyz'"
SILENT = "'"
PHONES = len(LETTERS)
"""Silence and one phone for each letter except the apostrophe."""
FRAMES_A_LETTER = 2

Codes = NDArray[np.int16]


def pronunciation() -> Pronunciation:
    """Sees one letter on either side and uses the middle one; "x" is two phones, "k" and "s"."""
    letters, places = len(LETTERS), 3
    inputs = np.zeros((places, letters + 1, letters), np.float32)
    inputs[1, :letters] = np.eye(letters)
    outputs = np.zeros((letters, 2, PHONES), np.float32)
    for number, letter in enumerate(LETTERS):
        said = {"x": [_phone("k"), _phone("s")], SILENT: [0, 0]}.get(letter, [_phone(letter), 0])
        outputs[number, [0, 1], said] = 9
    bias = np.zeros(letters, np.float32), np.zeros(2 * PHONES, np.float32)
    return Pronunciation(LETTERS, inputs, bias[0], outputs.reshape(letters, -1), bias[1])


def table() -> PhoneTable:
    """Code n is phone n with a probability of 0.9."""
    usual = np.full(PHONES, 1 / PHONES, np.float32)
    shares = np.full((PHONES, HOPS_PER_FRAME, PHONES), 0.1 / (PHONES - 1), np.float32)
    shares[np.arange(PHONES), :, np.arange(PHONES)] = 0.9
    return PhoneTable(shares / usual, usual, np.full(PHONES, 6.0, np.float32), pronunciation())


def acoustic_scorer() -> PhoneScorer:
    return PhoneScorer(table())


def spoken(source: str, *, pause_frames: int = 4, seed: int = 1, slips: float = 0.1) -> tuple[Codes, list[float]]:
    """Codes of `source` with letters of uneven durations and a share of wrong codes, and the end of each word in ms."""
    chance = np.random.default_rng(seed)
    codes: list[int] = []
    ends: list[float] = []
    for word in source.split():
        for letter in re.sub(r"[^a-z]", "", word.lower()):
            for phone in [_phone("k"), _phone("s")] if letter == "x" else [_phone(letter)]:
                codes += [phone] * int(chance.integers(1, 2 * FRAMES_A_LETTER))
        ends.append(FRAME_MS * len(codes))
        if re.search(r"\W$", word):
            codes += [0] * pause_frames
    wrong = chance.random(len(codes)) < slips
    return np.where(wrong, chance.integers(0, PHONES, len(codes)), codes).astype(np.int16), ends


def no_sound(codes: Codes) -> NDArray[np.float32]:
    """The audio to go with codes for a scorer that does not use it."""
    return np.zeros(len(codes) * FRAME_SAMPLES, np.float32)


def write(folder: Path, digest: str) -> Path:
    """Write the table into a checkpoint folder."""
    made = table()
    said = made.pronunciation
    tensors = {
        "likelier": made.likelihood_ratios,
        "usual": made.prior,
        "moments": made.mean_hops,
        "letters.inputs": said.inputs,
        "letters.hidden_bias": said.hidden_bias,
        "letters.outputs": said.outputs,
        "letters.output_bias": said.output_bias,
    }
    save_file(tensors, folder / PHONE_TABLE_FILE, {"letters": LETTERS, "codebook": digest})
    return folder / PHONE_TABLE_FILE


def _phone(letter: str) -> int:
    return 1 + LETTERS.index(letter)
