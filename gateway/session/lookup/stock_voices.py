"""Stock voice names of other services, and which of the served voices speaks in the place of each.

Clients carry such a name as their default, or cannot change it. The table says how each voice sounds, from the lists of
voices that the services publish.
"""

from __future__ import annotations

import logging
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from voxgate.pipeline.interface import AUTO_LANGUAGE, VoiceInfo

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StockVoice:
    """How a stock voice sounds; empty fields are not known. `language` is "auto" for one that speaks many."""

    gender: str = ""
    accent: str = ""
    language: str = AUTO_LANGUAGE


def _grouped(groups: Mapping[tuple[str, str], str]) -> dict[str, StockVoice]:
    return {
        name.lower(): StockVoice(gender, accent) for (gender, accent), names in groups.items() for name in names.split()
    }


_OPENAI = _grouped(
    {
        ("female", "american"): "alloy coral marin nova sage shimmer",
        ("male", "american"): "ash cedar echo onyx verse",
        ("male", "british"): "ballad fable",
    }
)
_ELEVENLABS = _grouped(
    {
        ("female", "american"): """21m00Tcm4TlvDq8ikWAM 9BWtsMINqrJLrRacOk9x AZnzlk1XvdvUeBnXmlld EXAVITQu4vr4xnSDxMaL
            FGY2WhTYpPnrIDTdsKH5 LcfcDJNUP1GQjkzn1xUU MF3mGyEYCl7XYWbV9V6O XrExE9yKIg1WjnnlVkGX cgSgspJ2msm6clMCkdW9
            hpp4J3VqNfWAUOO0d1Us jBpfuIE2acCO8z3wKNLl jsCqWAovK2LkecY7zXl4 oWAxZDx7w5VEj9dCyTzz pMsXgVXv3BLzUgSXRplE
            piTKgcLEGmPE4e6mEKli z9fAnlkpzviPz146aGWa""",
        ("", "american"): "SAz9YHcvj6GT2YYXdXww",
        ("male", "american"): """2EiwWnXFnvU5JabPnv8n CwhRBWXzGAHq8TQ4Fs17 ErXwobaYiN019PkySvjV GBv7mTt0atIp3Br8iCZE
            N2lVS1w4EtoT3dr4eOWO ODq5zmih8GrVes37Dizd SOYHLrjzK2X1ezoPC6cr TX3LPaxmHKxFdv7VOQHJ TxGEqnHWrfWFTfGW9XjX
            VR6AewLTigWG4xSOukaG bIHbv24MWmeRgasZH58o cjVigY5qzO86Huf0OWal flq6f7yk4E4fJM5XTYuZ g5CIjZEefAph4nQFvHAz
            iP95p4xoKVk53GoZ742B nPczCjzI2devNBz1zQrb pNInz6obpgDQGcFmaJgB pqHfZKP75CvOlQylNhV4 t0jbNlBVZ17f02VDIeMI
            wViXBPUzp2ZZixB1xQuM yoZ06aMxZJJ28mfd3POQ""",
        ("female", "british"): "ThT5KcBeYPX3keUQqHPh Xb7hH8MSUJpSbSDYk0k2 pFZP5JQG7iQjIQuC4Bku",
        ("male", "british"): """CYw3kZ02Hs0563khs1Fj JBFqnCBsd6RMkjVDRZzb Zlb1dXrM653N07WRdFW3
            onwK4e9ZLuTAKqWW03F9""",
        ("female", "swedish"): "XB0fDUnXU5powFXDhCwa zrHiDhphv9ZnVXBqCLjz",
        ("male", "australian"): "IKne3meq5aSn9XLyUdCD ZQe5CZNOzWyzPSCn5a3c",
        ("male", "irish"): "D38z5RcWu1voky8WS1ja bVMeCyTHy58xNoL34h3p",
        ("male", "italian"): "zcAOhNBS3c14rBihAFp1",
    }
)
_CARTESIA = _grouped(
    {
        ("female", "american"): """f786b574-daa5-4673-aa0c-cbe3e8534c02 694f9389-aac1-45b6-b726-9d9369183238
            156fb8d2-335b-4950-9cb3-a2d33befec77 b7d50908-b17c-442d-ad8d-810c63997ed9
            e07c00bc-4134-4eae-9ea4-1a55fb45746b 9626c31c-bec5-4cca-baa8-f8ba9e84c8bc
            248be419-c632-4f23-adf1-5324ed7dbf1d 00a77add-48d5-4ef6-8157-71e5437b282d
            e3827ec5-697a-4b7c-9704-1a23041bbc51 6ccbfb76-1fc6-48f7-b71d-91ac6298247b""",
        ("male", "american"): """a0e99841-438c-4a64-b679-ae501e7d6091 a167e0f3-df7e-4d52-a9c3-f949145efdab
            228fca29-3a0a-435c-8728-5cb483251068 c961b81c-a935-4c17-bfb3-ba2239de8c2f
            5ee9feff-1265-424a-9d7f-8e4d431a12c7 86e30c1d-714b-4074-a1f2-1cb6b552fb49""",
        ("female", "british"): """71a7ad14-091c-4e8e-a314-022ece01c121 79a125e8-cd45-4c13-8a67-188112f4dd22""",
        ("male", "british"): "63ff761f-c1e8-414b-b969-d1833d1c870c 95856005-0332-41b0-935f-352e296aa0df",
    }
)
_DEEPGRAM = _grouped(
    {
        ("female", "american"): """amalthea andromeda asteria aurora callista cora cordelia delia electra harmonia
            helena hera iris janus juno luna minerva ophelia phoebe selene stella thalia vesta""",
        ("male", "american"): """apollo arcas aries atlas hermes jupiter mars neptune odysseus orion orpheus perseus
            pluto saturn zeus""",
        ("female", "british"): "athena pandora",
        ("male", "british"): "draco helios",
        ("female", "australian"): "theia",
        ("male", "australian"): "hyperion",
        ("male", "irish"): "angus",
        ("female", ""): """agathe agustina ama antonia aurelia beatrix carina celeste cinzia cornelia daphne demetra
            diana elara estrella gloria hestia izanami kara lara leda livia maia melia olivia rhea selena silvia uzume
            viktoria""",
        ("male", ""): """alvaro aquila cesare dionisio ebisu elio fabian flavio fujin hector javier julius lars luciano
            nestor perseo roman sander sirio valerio""",
    }
)
"""By the middle part of the model's name."""
_DEEPGRAM_NAME = re.compile(r"(?:aura|aura-2|flux)-([a-z]{1,30})-([a-z]{2})")
_DEEPGRAM_LANGUAGES = {
    "en": "english",
    "es": "spanish",
    "de": "german",
    "fr": "french",
    "it": "italian",
    "ja": "japanese",
    "nl": "dutch",
}
_NAMED = _OPENAI | _ELEVENLABS | _CARTESIA

_ENGLISH_ACCENTS = ("american", "british", "scottish", "irish", "australian")
_ISLAND_ACCENTS = ("british", "scottish", "irish", "australian")


def describe(name: str) -> StockVoice | None:
    """How the stock voice of that name, in any case, sounds; None for a name that no service is known for."""
    name = name.lower()
    if (found := _DEEPGRAM_NAME.fullmatch(name)) is None:
        return _NAMED.get(name)
    language = _DEEPGRAM_LANGUAGES.get(found[2])
    known = _DEEPGRAM.get(found[1], StockVoice())
    return None if language is None else StockVoice(known.gender, known.accent, language)


class StockVoices:
    """Chooses the voice that speaks for a stock name, and logs each choice once. Shared by all clients."""

    def __init__(self) -> None:
        self._logged: dict[str, str] = {}
        """Voice by stock name: at most the names of the table, and of the pattern those that speak the same."""

    def choose(self, name: str, voices: Mapping[str, VoiceInfo], default: str) -> str | None:
        """The name of the voice among `voices` that is nearest to the stock voice `name` in gender, then in accent.

        `default` speaks where the gender of no voice is known. None for a name that is no stock name, and for one whose
        language no voice speaks.
        """
        if (wanted := describe(name)) is None:
            return None
        fitting = {
            served: voice
            for served, voice in voices.items()
            if wanted.language in voice.languages and not voice.needs_instructions
        }
        known = {served: voice for served, voice in fitting.items() if voice.gender}
        if known:
            chosen = min(known, key=lambda served: (*_distance(wanted, known[served]), _share(name, served)))
        else:
            chosen = default.lower() if default.lower() in fitting else next(iter(fitting), "")
        if chosen:
            self._log(name, chosen)
        return chosen or None

    def _log(self, name: str, chosen: str) -> None:
        if len(self._logged) < _MAX_LOGGED and self._logged.get(name.lower()) != chosen:
            self._logged[name.lower()] = chosen
            log.info("the stock voice %s is spoken by %s; --voice-aliases %s=VOICE chooses another", name, chosen, name)


_MAX_LOGGED = 200
"""Stock names that are logged; Deepgram's form is open, so a client could invent names."""


def _distance(wanted: StockVoice, voice: VoiceInfo) -> tuple[int, int]:
    """How far apart two voices are, in gender and in accent."""
    gender = int(bool(wanted.gender) and wanted.gender != voice.gender)
    if not wanted.accent or wanted.accent == voice.accent:
        return gender, 0
    if wanted.accent in _ISLAND_ACCENTS and voice.accent in _ISLAND_ACCENTS:
        return gender, 1
    return gender, 2 if voice.accent in ("", *_ENGLISH_ACCENTS) else 3


def _share(name: str, served: str) -> int:
    """Divides names evenly between equally near voices; a further voice changes few of them (rendezvous hashing)."""
    return zlib.crc32(f"{name.lower()} {served}".encode())
