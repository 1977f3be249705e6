"""Clients that take text back at random moments, compared with undisturbed speech and with speech from the kept codes.

Even seeds speak through the real pipeline without a model, odd ones through the tone synthesizer.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from fakes.gateway.in_process import PCM, InProcessGateway
from fakes.gateway.packet_encoder import s16le
from fakes.gateway.websocket import FakeSocket
from fakes.pipeline.tone_synthesizer import ToneScript, ToneSynthesizer
from fakes.virtual_time import run
from voxgate.gateway.protocols.native import NativeProtocol
from voxgate.pipeline.interface import SpeechRequest

from .model_free_pipeline import UNPACED_FRAMES, ModelFreePipeline, SentText

WORDS = ("one", "two", "three", "four", "five", "seven", "eleven", "thirteen", "ninety-nine", "\U0001f600", "naïve")
MARKS = ("", "", "", "", "", ",", ".", "?")
SEED = 5
STEP_S = 0.3
"""Longest time between two things that a client does, seconds; a word takes about as long."""


@dataclass
class Heard:
    """What a client has of its utterance."""

    sent: SentText = ()
    """The text with its flushes, after all retractions."""
    request: SpeechRequest | None = None
    """Of the last speech."""
    audio: bytes = b""
    fixed_samples: int | None = None
    """Audio up to the first cut."""
    words: list[dict[str, Any]] = field(default_factory=list)
    visemes: list[dict[str, Any]] = field(default_factory=list)
    retractions: int = 0
    """Retractions that were answered."""
    cuts: int = 0


def text_of(chance: random.Random, words: int) -> str:
    return "".join(chance.choice(WORDS) + chance.choice(MARKS) + " " for _ in range(words))


def simulate_retractions(seed: int) -> Heard:
    """Runs one seed. Raises AssertionError when speech is not what it has to be."""
    make = _synthesizer(seed)
    disturbed = run(_scene(make, seed, disturbed=True), disorder=random.Random(seed) if seed % 4 > 1 else None)
    undisturbed = run(_scene(make, seed, disturbed=False))
    if disturbed.fixed_samples is not None:
        fixed = 2 * disturbed.fixed_samples
        assert disturbed.audio[:fixed] == undisturbed.audio[:fixed], "what was spoken before the cut stays"
    assert disturbed.request is not None
    expected = run(offline_audio(make(), disturbed.request, disturbed.sent))
    assert disturbed.audio == expected, "what follows is the speech behind the kept codes"
    return disturbed


def _synthesizer(seed: int) -> Callable[[], Any]:
    chance = random.Random(seed)
    slots, frame_s = chance.randint(1, 2), chance.choice([0.0, 0.01, 0.05])
    chunk_frames = chance.choice([1, 2, 4])
    if seed % 2:
        close_s = chance.choice([0.0, 0.02, 0.2])
        script = ToneScript(1.0, chunk_frames, frame_s=frame_s, close_s=close_s, alignment_turns=chance.choice([0, 3]))
        return lambda: ToneSynthesizer(script, slots=slots)
    return lambda: ModelFreePipeline(slots=slots, frame_s=frame_s, chunk_frames=chunk_frames)


async def offline_audio(synthesizer: Any, request: SpeechRequest, sent: SentText) -> bytes:
    """The audio behind the kept codes, without a gateway."""
    await synthesizer.start()
    speech = synthesizer.open(replace(request, paced=False))
    if isinstance(synthesizer, ModelFreePipeline):
        speech.advance(UNPACED_FRAMES)
    for fragment in sent:
        if fragment is None:
            speech.flush()
        else:
            speech.push_text(fragment)
    speech.end()
    chunks = []
    async for chunk in speech:
        chunks.append(chunk.pcm)
        if not isinstance(synthesizer, ModelFreePipeline):
            speech.advance(speech.made)
    await speech.aclose()
    return s16le(np.concatenate(chunks))


class RetractingClient:
    """One utterance of a client that takes text back."""

    def __init__(self, socket: FakeSocket, chance: random.Random) -> None:
        self.heard = Heard()
        self._socket, self._chance = socket, chance
        self._pieces: list[str | None] = []

    @property
    def _text(self) -> str:
        return "".join(piece for piece in self._pieces if piece is not None)

    async def speak(self, *, disturbed: bool) -> Heard:
        chance, socket = self._chance, self._socket
        pacing = chance.choice(["playback", "playback", "playback", "none"])
        socket.put(
            type="start", utterance="u", format=PCM, seed=SEED, words=True, visemes=True, voice="ada", pacing=pacing
        )
        self._write(text_of(chance, chance.randint(1, 30)))
        ended = chance.random() < 0.5
        if not disturbed or ended:
            socket.put(type="end", utterance="u")
        for _ in range(chance.choice([1, 1, 2, 3]) if disturbed else 0):
            await asyncio.sleep(chance.choice([0.0, chance.uniform(0, STEP_S), chance.uniform(0, 10 * STEP_S)]))
            if not await self._retract():
                break
        else:
            if not self._text:
                self._write(text_of(chance, 1))  # there is something to say
            if disturbed:
                socket.put(type="end", utterance="u")
        done = await socket.until("done")
        self._check(done)
        return self.heard

    def _write(self, text: str) -> None:
        for word in text.split(" ")[:-1]:
            self._socket.put(type="text", utterance="u", text=word + " ")
            self._pieces.append(word + " ")
            if self._chance.random() < 0.05:
                self._socket.put(type="flush", utterance="u")
                self._pieces.append(None)

    async def _retract(self) -> bool:
        """Takes text back, perhaps writes more before the answer comes; returns False if the utterance had ended."""
        chance, socket, text = self._chance, self._socket, self._text
        before = list(self._pieces)
        asked = chance.choice([0, 0, chance.randint(0, len(text)), len(text)])
        number = self.heard.retractions + 1
        socket.put(type="retract", utterance="u", id=f"r{number}", characters=asked)
        self._pieces = []
        if chance.random() < 0.8:
            self._write(text_of(chance, chance.randint(1, 8)))
        while not any(each.get("id") == f"r{number}" for each in socket.messages):
            await asyncio.sleep(0.01)
        (answer,) = [each for each in socket.messages if each.get("id") == f"r{number}"]
        if answer["type"] == "error":
            assert answer["code"] == "utterance_ended", answer
            self._pieces = before
            return False
        self._check_answer(answer, text, asked)
        kept, at = answer["characters"], answer.get("flush_at")
        self._pieces = kept_pieces(before, kept, at) + self._pieces
        self.heard.retractions += 1
        return True

    def _check_answer(self, answer: dict[str, Any], text: str, asked: int) -> None:
        messages = self._socket.sent
        at = next(n for n, each in enumerate(messages) if isinstance(each, str) and json.loads(each) == answer)
        sent = sum(len(each) - 20 for each in messages[:at] if isinstance(each, bytes)) // 2
        kept, flush_at, samples = answer["characters"], answer.get("flush_at", 0), answer.get("samples")
        assert kept == max(asked, flush_at)
        assert text[kept:] == answer["text"]
        if samples is None:
            fixed = self.heard.fixed_samples  # text behind that which is kept may be another
            self.heard.fixed_samples = sent if fixed is None else min(sent, fixed)
            return
        assert samples >= sent, "what was sent stays"
        assert bool(sent) == bool(flush_at)
        self.heard.cuts += bool(samples)
        if self.heard.fixed_samples is None or samples < self.heard.fixed_samples:
            self.heard.fixed_samples = samples

    def _check(self, done: dict[str, Any]) -> None:
        heard, text = self.heard, self._text
        heard.sent = self._pieces
        assert done["characters"] == len(text)
        parts = self._socket.audio(1)
        assert [header.seq for header, _ in parts] == list(range(len(parts)))
        assert [header.pts for header, _ in parts] == [sum(h.samples for h, _ in parts[:i]) for i in range(len(parts))]
        heard.audio = b"".join(payload for _, payload in parts)
        assert [header.last for header, _ in parts] == [False] * (len(parts) - 1) + [True]
        assert done["samples"] == len(heard.audio) // 2
        for message in self._socket.messages:
            if message["type"] == "retracted":
                heard.words = [each for each in heard.words if each["start"] < message["void_from"]]
                if "audio_ms" in message:
                    for each in heard.words:
                        for time in ("start_ms", "end_ms"):
                            each[time] = min(each[time], message["audio_ms"])
                    heard.visemes = [each for each in heard.visemes if each["start_ms"] < message["audio_ms"]]
            elif message["type"] == "words":
                heard.words += message["words"]
            elif message["type"] == "visemes":
                heard.visemes += message["visemes"]
        starts = [each["start"] for each in heard.words]
        assert starts == sorted(set(starts))
        assert all(text[each["start"] : each["end"]] == each["text"] for each in heard.words)
        assert [each["text"] for each in heard.words] == text.split()
        times = [time for each in heard.words for time in (each["start_ms"], each["end_ms"])]
        assert times == sorted(times)
        shapes = [each["start_ms"] for each in heard.visemes]
        assert shapes == sorted(set(shapes))
        assert heard.visemes[0]["start_ms"] == 0
        assert all(a["viseme"] != b["viseme"] for a, b in zip(heard.visemes, heard.visemes[1:], strict=False))
        assert heard.visemes[-1]["viseme"] == "sil"


def kept_pieces(pieces: SentText, kept: int, flush_at: int | None) -> list[str | None]:
    """The pieces of the first `kept` characters, flushed at an offset."""
    left: list[str | None] = []
    at = 0
    for piece in pieces:
        if piece is None:
            if at <= kept:
                left.append(None)
            continue
        taken = piece[: max(0, kept - at)]
        if flush_at is not None and at < flush_at < at + len(taken):
            left += [taken[: flush_at - at], None, taken[flush_at - at :]]
        elif taken:
            left.append(taken)
        if taken and flush_at == at + len(taken):
            left.append(None)
        at += len(piece)
    return left


def recorded_requests(synthesizer: Any) -> list[SpeechRequest]:
    """Returns the list to which every request is appended with which a speech is opened from now on."""
    requests: list[SpeechRequest] = []
    opened = synthesizer.open

    def open_recorded(request: SpeechRequest) -> Any:
        speech = opened(request)
        requests.append(request)
        return speech

    synthesizer.open = open_recorded
    return requests


async def _scene(make: Callable[[], Any], seed: int, *, disturbed: bool) -> Heard:
    chance = random.Random(seed)
    synthesizer = make()
    requests = recorded_requests(synthesizer)
    async with InProcessGateway(synthesizer=synthesizer) as gateway:
        client = RetractingClient(gateway.connect(protocol=NativeProtocol(extended=True)), chance)
        async with asyncio.timeout(300):
            heard = await client.speak(disturbed=disturbed)
        heard.request = requests[-1]
    return heard
