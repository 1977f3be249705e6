"""What was said and heard, one record for each utterance, in a file that grows: a run that was cut off goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

SOURCE = "source"
VOICE = "voice"
CODEC = "codec"


@dataclass(frozen=True, slots=True)
class TakeKey:
    """One utterance to be made. `origin`: the source voice's own sound, that through the codec, or the model's."""

    origin: str
    voice: str
    spoken: str
    seed: int = 0
    temperature: float = 0.0
    predictor_temperature: float = 0.0


@dataclass(frozen=True, slots=True)
class Take:
    """What became of it. `seconds`: all of the sound; `chosen`: right or not from a closed set, None when not asked."""

    said: TakeKey
    ended: bool
    seconds: float
    lead_s: float
    span_s: float
    pauses_s: float
    heard: str
    chosen: bool | None = None


class TakeLog:
    """All takes known so far, on disk as they come in: a line of JSON each."""

    def __init__(self, path: Path) -> None:
        """Reads what is there, and cuts off a last line that was not written to its end."""
        self._path = path
        self._takes: dict[TakeKey, Take] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            text = path.read_text("utf-8")
            whole = text[: text.rfind("\n") + 1]
            if whole != text:
                path.write_text(whole, encoding="utf-8")
            self._takes = {take.said: take for take in map(_take, whole.splitlines())}

    def __contains__(self, said: TakeKey) -> bool:
        return said in self._takes

    def get(self, said: TakeKey) -> Take | None:
        return self._takes.get(said)

    def __getitem__(self, said: TakeKey) -> Take:
        return self._takes[said]

    def __iter__(self) -> Iterator[Take]:
        return iter(self._takes.values())

    def __len__(self) -> int:
        return len(self._takes)

    def add(self, take: Take) -> None:
        self._takes[take.said] = take
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(take)) + "\n")


def _take(line: str) -> Take:
    fields = json.loads(line)
    return Take(said=TakeKey(**fields.pop("said")), **fields)
