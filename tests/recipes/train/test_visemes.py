"""Figures of mouth shapes beside the teacher's, and the shapes of the teachers' phones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from train.speech.check_visemes import VisemeErrors
from train.speech.reading import PHONES
from voxgate.pipeline.alignment.visemes import PHONE_VISEMES, VISEMES


def hops(text: str) -> NDArray[np.uint8]:
    """A letter for each hop: closed lips, open mouth, silence."""
    return np.array([VISEMES.index({"P": "PP", "a": "aa", ".": "sil"}[letter]) for letter in text], np.uint8)


def figures(shown: str, true: str) -> VisemeErrors:
    errors = VisemeErrors()
    errors.add(hops(shown), hops(true))
    return errors


def test_every_phone_of_the_teachers_has_a_viseme() -> None:
    assert set(PHONES) == set(PHONE_VISEMES)


def test_shapes_one_hop_off_are_near() -> None:
    errors = figures("..PPPaa", "...PPaa")
    assert (errors.hops, errors.right, errors.near) == (7, 6, 7)
    assert (errors.closures, errors.closures_found, errors.start_errors_ms) == (1, 1, [20])


def test_missed_and_false_closures_are_counted() -> None:
    errors = figures(".PPaaaaaaaP.aPP", ".PPaaPPaaaa.aPP")
    assert (errors.closures, errors.closures_found) == (3, 2)
    assert (errors.closures_made, errors.closures_false) == (3, 1)
    assert errors.start_errors_ms == [0, 0]
    assert "2 of 3" in errors.table()
