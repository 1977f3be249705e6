"""Measurements of utterances, appended to a file so that a stopped run can continue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

SOURCE = "source"
VOICE = "voice"
CODEC = "codec"


@dataclass(frozen=True, slots=True)
class UtteranceKey:
    """Identifies an utterance. `origin`: SOURCE, CODEC (the source through the codec) or VOICE (the checkpoint)."""

    origin: str
    voice: str
    spoken: str
    seed: int = 0
    temperature: float = 0.0
    predictor_temperature: float = 0.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """Measurements of one utterance.

    `ended`: whether the voice ended by itself. `seconds`: duration of the audio. The other times are those of
    `SpeechExtent`. `mos`, `speaker` and `speaker_kept` are those of `Judgement`. `drift_db`: see `sound.drift_db`.
    """

    key: UtteranceKey
    ended: bool
    seconds: float
    leading_silence_s: float
    speech_s: float
    pauses_s: float
    transcript: str
    mos: float | None = None
    speaker: tuple[float, ...] = ()
    speaker_kept: float | None = None
    drift_db: float | None = None


class MeasurementLog:
    """All measurements by key, and their file, with one line of JSON each."""

    def __init__(self, path: Path) -> None:
        """Read the file, and remove an incomplete last line."""
        self._path = path
        self._measurements: dict[UtteranceKey, Measurement] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            text = path.read_text("utf-8")
            whole = text[: text.rfind("\n") + 1]
            if whole != text:
                path.write_text(whole, encoding="utf-8")
            self._measurements = {measurement.key: measurement for measurement in map(_parse, whole.splitlines())}

    def __contains__(self, key: UtteranceKey) -> bool:
        return key in self._measurements

    def get(self, key: UtteranceKey) -> Measurement | None:
        """The measurement, or None."""
        return self._measurements.get(key)

    def __getitem__(self, key: UtteranceKey) -> Measurement:
        return self._measurements[key]

    def __iter__(self) -> Iterator[Measurement]:
        return iter(self._measurements.values())

    def __len__(self) -> int:
        return len(self._measurements)

    def add(self, measurement: Measurement) -> None:
        """Add a measurement, and append it to the file."""
        self._measurements[measurement.key] = measurement
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(measurement)) + "\n")


def _parse(line: str) -> Measurement:
    fields = json.loads(line)
    speaker = tuple(fields.pop("speaker", ()))
    return Measurement(key=UtteranceKey(**fields.pop("key")), speaker=speaker, **fields)
