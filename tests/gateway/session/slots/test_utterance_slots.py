"""What an utterance does while the answer to its request for a slot is on its way."""

from __future__ import annotations

import json

from fakes.gateway.packet_encoder import FakeEncoder
from fakes.pipeline.tone_synthesizer import ToneSynthesizer
from fakes.virtual_time import run
from voxgate.gateway.access.caller import Caller
from voxgate.gateway.access.keys import KeyLimits
from voxgate.gateway.protocols.native import NativeProtocol
from voxgate.gateway.session.session import ServerSession
from voxgate.gateway.session.utterance_factory import UtteranceFactory
from voxgate.gateway.settings import Settings
from voxgate.gateway.workers.messages import Join, TicketGranted, TicketMoved, TicketRefused
from voxgate.gateway.workers.remote_admission import RemoteAdmission
from voxgate.pipeline.errors import AtCapacity
from voxgate.pipeline.ipc.engine_messages import Message


class WorkerSession:
    """A session whose slots another process grants, and what it asked that process, with the speeches prepared then."""

    def __init__(self, *messages: dict[str, object]) -> None:
        """`messages`: behind the start."""
        messages = messages or ({"type": "text", "text": "hello"},)
        self.synthesizer = ToneSynthesizer()
        run(self.synthesizer.start())
        self.asked: list[tuple[Message, int]] = []
        self.admission = RemoteAdmission(3000, self._ask)
        factory = UtteranceFactory(Settings(), self.synthesizer, FakeEncoder)
        caller = Caller("ada", KeyLimits())
        self.session = ServerSession("s", caller, factory, self.admission, NativeProtocol(), lambda: None)
        for message in ({"type": "start"}, *messages):
            self.receive(**message)

    def _ask(self, message: Message) -> None:
        self.asked.append((message, len(self.synthesizer.prepared)))

    def receive(self, **message: object) -> None:
        self.session.receive(json.dumps(message | {"utterance": "u"}), 0.0)


def test_a_speech_is_prepared_behind_its_request_and_opened_by_the_grant() -> None:
    worker = WorkerSession()
    assert worker.asked == [(Join(1, "ada", None), 0)]
    (prepared,) = worker.synthesizer.prepared
    worker.admission.on_message(TicketGranted(1, (3, 9, None)), 0.1)
    (speech,) = worker.synthesizer.speeches
    assert speech.request is prepared.request
    assert [each.prepared_speech for each in worker.session.active] == [None]


def test_a_prepared_speech_waits_in_the_queue() -> None:
    worker = WorkerSession()
    worker.admission.on_message(TicketMoved(1, 2, 700), 0.1)
    assert not worker.synthesizer.speeches
    worker.admission.on_message(TicketGranted(1, (3, 9, None)), 0.2)
    assert len(worker.synthesizer.speeches) == len(worker.synthesizer.prepared) == 1


def test_a_refused_or_interrupted_utterance_opens_no_speech() -> None:
    refused = WorkerSession()
    refused.admission.on_message(TicketRefused(1, AtCapacity.code, "enough", 900, "queue"), 0.1)
    interrupted = WorkerSession()
    interrupted.receive(type="interrupt")
    for worker in (refused, interrupted):
        assert not worker.session.active
        worker.admission.on_message(TicketGranted(1, (3, 9, None)), 0.2)  # crossed with the end of the utterance
        assert not worker.synthesizer.speeches


def test_a_prepared_speech_has_read_the_text_before_the_first_flush() -> None:
    worker = WorkerSession({"type": "text", "text": "..."}, {"type": "flush"})
    assert [each.beginning for each in worker.synthesizer.prepared] == ["..."]
    worker = WorkerSession({"type": "text", "text": "hello "}, {"type": "text", "text": "all"})
    assert [each.beginning for each in worker.synthesizer.prepared] == ["hello "]


def test_a_speech_that_has_read_text_which_was_taken_back_is_not_opened() -> None:
    worker = WorkerSession({"type": "text", "text": "hello all"})
    worker.receive(type="retract", characters=5)
    worker.session.next_effect(0.0)
    assert [str(each.text) for each in worker.session.active] == ["hello"]
    assert [each.prepared_speech for each in worker.session.active] == [None]
    worker.admission.on_message(TicketGranted(1, (3, 9, None)), 0.1)
    assert len(worker.synthesizer.speeches) == 1
