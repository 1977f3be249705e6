"""Drives the session state machine with random legal and illegal events, without an event loop."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fakes.gateway.packet_encoder import FakeEncoder
from fakes.pipeline.tone_synthesizer import ToneScript, ToneSpeech, ToneSynthesizer
from voxgate.client.utterance import MESSAGE_REFUSED_CODES
from voxgate.gateway.access.caller import Caller
from voxgate.gateway.access.keys import KeyLimits
from voxgate.gateway.audio_header import AudioHeader
from voxgate.gateway.protocols.native import NativeProtocol
from voxgate.gateway.session import utterance as utterance_module
from voxgate.gateway.session.admission import AdmissionQueue, Ticket
from voxgate.gateway.session.effects import (
    CloseSocket,
    CloseSpeech,
    ReadSpeech,
    RewindSpeech,
    SendAudio,
    SendMessage,
    SuspendSpeech,
)
from voxgate.gateway.session.lifecycle import TABLE, Event, State, follow
from voxgate.gateway.session.session import ServerSession
from voxgate.gateway.session.utterance import ServerUtterance
from voxgate.gateway.session.utterance_factory import UtteranceFactory
from voxgate.gateway.settings import Settings
from voxgate.pipeline.errors import GenerationFailed, VoxgateError
from voxgate.pipeline.interface import EngineState, Speech

NAMES = ("a", "b", "c", "d")
RARE = (State.SUSPENDED, State.SUSPENDED_ENDED, State.QUEUED_ENDED)


class SessionWalk:
    """Random events for one session after another; checks every effect as it takes it."""

    def __init__(self, seed: int, slots: int = 1) -> None:
        self.chance = random.Random(seed)
        self.now_s = 0.0
        self.synthesizer = ToneSynthesizer(ToneScript(max_frames=15), slots=slots, max_characters=200)
        self.synthesizer._state = EngineState.READY  # starting it takes a loop
        self.settings = Settings(
            utterances_per_session=3,
            queue_length=2,
            starts_per_s=1000,
            interrupts_per_s=1000,
            messages_per_s=10_000,
        )
        self.admission = AdmissionQueue(lambda: self.synthesizer.slots, 2, 3000)
        self.factory = UtteranceFactory(self.settings, self.synthesizer, FakeEncoder)
        self.closing: list[tuple[ServerUtterance, Speech | None, Ticket | None]] = []
        self.rewinding: list[tuple[ServerUtterance, Speech]] = []
        self.suspending: list[tuple[ServerUtterance, ToneSpeech, bool]] = []
        self.connect()

    def connect(self) -> None:
        self.session = ServerSession(
            "s", Caller("k", KeyLimits()), self.factory, self.admission, NativeProtocol(), lambda: None
        )
        self.listening: set[ServerUtterance] = set()
        self.closed_speeches: set[ServerUtterance] = set()
        self.next_seq: dict[int, int] = {}
        self.ended: set[int] = set()
        self.held: set[int] = set()
        self.numbers: dict[str, int] = {}
        self.closed = False
        self.session.open(0.0)

    # Events

    def step(self) -> None:
        events: list[tuple[int, Callable[[], None]]] = [
            (30, self.client),
            (40, self.speak),
            (25, self.take),
            (10, self.close_one),
            (5, self.suspend_one),
            (8, self.rewind_one),
            (16, self.wait),
            (1, self.break_one),
            (1, self.lose_engine),
            (1, self.stall),
            (1, self.end),
        ]
        self.chance.choices([e for _, e in events], [w for w, _ in events])[0]()
        self.check_counts()

    def client(self) -> None:
        # Few utterances give their slot up, or wait for one with all their text: their clients speak more often.
        rare = [each.name for each in self.session.active if each.state in RARE and each.name in NAMES]
        name = self.chance.choice(rare if rare and self.chance.random() < 0.4 else NAMES)
        kept = self.chance.choice([0, 0, self.chance.randrange(120)])
        kinds: list[dict[str, Any] | str] = [
            {"type": "start", "utterance": name, "pacing": self.chance.choice(["playback", "none"])}
            | self.chance.choice([{}, {"rate": 0.5}, {"rate": 1.25}, {"starving_ms": 400}, {"visemes": True}]),
            {"type": "start", "utterance": name, "voice": self.chance.choice(["ada", "eve"])},
            {"type": "text", "utterance": name, "text": "x" * self.chance.choice([0, 1, 9, 90])},
            {"type": "text", "utterance": name, "text": "hello "},
            {"type": "flush", "utterance": name},
            {"type": "end", "utterance": name},
            {"type": "text", "utterance": name, "text": self.chance.choice([" ", "...", "<b>", "<|im_"])},
            {"type": "interrupt"},
            {"type": "interrupt", "utterance": name},
            {"type": "interrupt", "utterance": name, "played_ms": self.chance.randrange(5000)},
            {"type": "interrupt", "utterance": name, "hold_ms": self.chance.choice([1, 300, 5000, 10_001])},
            {"type": "interrupt", "hold_ms": 5000},
            {"type": "continue", "utterance": name},
            {"type": "retract", "utterance": name, "characters": kept},
            {"type": "ack", "utterance": name, "played_samples": self.chance.randrange(100_000)},
            {"type": "ping"},
            "garbage",
        ]
        weights = [6, 2, 6, 6, 2, 5, 3, 0.2, 1, 1, 3, 0.2, 6, 3, 4, 1, 0.1]
        chosen = self.chance.choices(kinds, weights)[0]
        self.session.receive(chosen if isinstance(chosen, str) else json.dumps(chosen), self.now_s)

    def speak(self) -> None:
        if not self.listening:
            return
        utterance = self.chance.choice(sorted(self.listening, key=lambda u: u.number))
        assert isinstance(utterance.speech, ToneSpeech)
        try:
            chunk = utterance.speech.step()
        except StopAsyncIteration:
            self.listening.discard(utterance)
            self.session.on_finished(utterance)
        except VoxgateError as error:
            self.listening.discard(utterance)
            self.session.on_failed(utterance, error)
        else:
            if chunk is not None and utterance.outbox.has_room:
                self.session.on_audio(utterance, chunk)

    def wait(self) -> None:
        wake_s = self.session.next_wake_s(self.now_s)
        jump_s = self.chance.choice([0.01, 0.08, 0.5, 4.0])
        self.now_s += min(jump_s, wake_s - self.now_s) if wake_s > self.now_s else jump_s

    def break_one(self) -> None:
        for utterance in self.listening:
            assert isinstance(utterance.speech, ToneSpeech)
            utterance.speech.lose(GenerationFailed("random"))
            return

    def lose_engine(self) -> None:
        if self.chance.random() < 0.2:
            self.synthesizer.lose()
        self.synthesizer._state = EngineState.READY

    def stall(self) -> None:
        if self.chance.random() < 0.2:
            self.session.on_write_blocked(self.now_s, self.now_s - self.chance.choice([0.5, 2.0, 9.0]))

    def close_one(self) -> None:
        """Confirm the end of a speech for the engine."""
        if self.closing:
            _, speech, ticket = self.closing.pop(self.chance.randrange(len(self.closing)))
            self.free(speech)
            if ticket is not None:
                self.admission.release(ticket, self.now_s)

    def free(self, speech: Speech | None) -> None:
        if isinstance(speech, ToneSpeech):
            self.synthesizer.open_speeches.pop(speech, None)

    def rewind_one(self) -> None:
        """Confirm the end of a speech that another one follows."""
        if self.rewinding:
            utterance, speech = self.rewinding.pop(self.chance.randrange(len(self.rewinding)))
            self.free(speech)
            self.closed_speeches.discard(utterance)
            self.session.on_rewound(utterance, self.now_s)

    def suspend_one(self) -> None:
        """Confirm that a speech has given its slot up, or that it keeps it because text came."""
        if not self.suspending:
            return
        utterance, speech, anywhere = self.suspending.pop(self.chance.randrange(len(self.suspending)))
        if utterance.speech is not speech:
            return
        given_up = speech in self.synthesizer.open_speeches and not utterance.speech_closed
        given_up = given_up and (speech.waiting_for_text or (anywhere and speech.finish_reason is None))
        if given_up:
            speech.suspended = True
            self.synthesizer.freed(speech)
        self.session.on_suspended(utterance, self.now_s, given_up=given_up)

    def end(self) -> None:
        kind = self.chance.randrange(8)
        if kind == 0:
            self.session.drain(1000, self.now_s + 0.1)
        elif kind == 1:
            self.session.abort()
        elif kind == 2:
            for utterance in self.session.on_disconnect():
                self.start_closing(utterance)
            self.check_everything_returned()
            self.connect()

    # Effects

    def take(self) -> None:
        for _ in range(self.chance.randrange(20)):
            match self.session.next_effect(self.now_s):
                case None:
                    return
                case SendMessage(message=message):
                    self.take_message(json.loads(message))
                case SendAudio(utterance=utterance, message=message):
                    assert isinstance(message, bytes)
                    header, _ = AudioHeader.unpack(message)
                    assert not self.closed
                    assert header.number not in self.ended
                    assert header.number == utterance.number
                    assert header.number not in self.held
                    assert header.seq == self.next_seq[header.number]
                    self.next_seq[header.number] += 1
                case ReadSpeech(utterance=utterance):
                    assert utterance not in self.closed_speeches
                    self.listening.add(utterance)
                case SuspendSpeech(utterance=utterance, speech=speech, anywhere=anywhere):
                    assert isinstance(speech, ToneSpeech)
                    self.suspending.append((utterance, speech, anywhere))
                case RewindSpeech(utterance=utterance, speech=speech):
                    self.listening.discard(utterance)
                    self.rewinding.append((utterance, speech))
                case CloseSpeech(utterance=utterance):
                    self.start_closing(utterance)
                case CloseSocket():
                    assert not self.closed
                    for utterance in self.session.on_disconnect():
                        self.start_closing(utterance)
                    self.check_everything_returned()
                    self.connect()
                    return

    def take_message(self, message: dict[str, Any]) -> None:
        kind, name = message["type"], message.get("utterance")
        if kind == "started":
            self.numbers[name] = message["number"]
            self.next_seq[message["number"]] = 0
        elif kind == "starving":
            assert self.numbers[name] not in self.ended | self.held
            assert 0 <= message["audio_ms"] <= 400
        elif kind == "visemes":
            assert self.numbers[name] not in self.ended
            assert message["visemes"]
        elif kind == "continued":
            number = self.numbers.get(name, 0)
            assert message["seq"] <= self.next_seq.get(number, 0), "a gap"
            self.next_seq[number] = message["seq"]
            self.held.discard(number)
            self.ended.discard(number)
        elif kind == "done":
            # An interrupt may still be answered, so only audio is over.
            self.ended.add(self.numbers[name])
        elif kind == "interrupted" and "hold_ms" in message:
            self.held.add(self.numbers.get(name, 0))
        elif kind == "interrupted":
            self.ended.add(self.numbers.pop(name, 0))
        elif kind == "error" and name and message["code"] not in MESSAGE_REFUSED_CODES:
            number = self.numbers.get(name, 0)
            if number not in self.ended:  # otherwise it refuses another start
                self.ended.add(self.numbers.pop(name, 0))

    def start_closing(self, utterance: ServerUtterance) -> None:
        assert utterance not in self.closed_speeches, "a speech is closed once"
        self.closed_speeches.add(utterance)
        self.listening.discard(utterance)
        self.closing.append((utterance, utterance.speech, utterance.ticket))

    # Invariants

    def check_counts(self) -> None:
        assert self.admission.active <= 2
        assert self.admission.queued <= 2
        assert len(self.synthesizer.open_speeches) <= 2
        assert len(self.session.active) <= 3
        assert all(not u.ended for u in self.session.active)
        for utterance in self.session.active:
            assert utterance.outbox.has_room or utterance.outbox.next_samples

    def check_everything_returned(self) -> None:
        assert not self.listening
        while self.closing:
            self.close_one()
        while self.rewinding:  # their sessions are over
            self.free(self.rewinding.pop()[1])
        assert (self.admission.active, self.admission.queued) == (0, 0)
        assert not self.synthesizer.open_speeches


SPOKEN_WITHOUT_SLOT = {(state, Event.SPOKEN) for state in (State.QUEUED, State.QUEUED_ENDED, State.SUSPENDED)}
"""Text that came while an utterance had no slot had nothing to speak; the tone synthesizer speaks every character."""
EDGES = {(state, event) for state, row in TABLE.items() for event in row} - SPOKEN_WITHOUT_SLOT
"""The edges of the state table of utterances; a long walk takes all of them."""


def walk(steps: int, seed: int) -> set[tuple[State, Event]]:
    """Take `steps` random events. Returns the edges taken; raises AssertionError when an invariant is broken."""
    with _recorded_edges() as edges:
        walker = SessionWalk(seed)
        for _ in range(steps):
            walker.step()
        for utterance in walker.session.on_disconnect():
            walker.start_closing(utterance)
        walker.check_everything_returned()
    return edges


@contextmanager
def _recorded_edges() -> Iterator[set[tuple[State, Event]]]:
    edges: set[tuple[State, Event]] = set()

    def recorded(state: State, event: Event) -> State:
        after = follow(state, event)
        edges.add((state, event))
        return after

    utterance_module.follow = recorded
    try:
        yield edges
    finally:
        utterance_module.follow = follow
