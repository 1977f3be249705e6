"""The budget for text of an event loop, and the order of what waits for it."""

from __future__ import annotations

import pytest
from fakes.virtual_time import run, settle, turns
from hypothesis import given
from hypothesis import strategies as st
from voxgate.pipeline.errors import EmptyText, GenerationFailed, VoxgateError
from voxgate.pipeline.text.text_turns import FLUSH_CHARACTERS, PendingText, TextTurns


class Receiver:
    """Records what a PendingText processes."""

    def __init__(self, budget: TextTurns, *, error: Exception | None = None) -> None:
        self.read: list[str] = []
        self.errors: list[VoxgateError] = []
        self._error = error
        self.pending = PendingText(
            budget, self.read.append, lambda: self.read.append("<flush>"), self._end, self.errors.append
        )

    def _end(self) -> None:
        self.read.append("<end>")
        if self._error is not None:
            raise self._error

    @property
    def text(self) -> str:
        return "".join(self.read)


def test_text_within_the_budget_is_processed_at_once() -> None:
    async def scene() -> None:
        receiver = Receiver(TextTurns(50))
        receiver.pending.push("one")
        receiver.pending.flush()
        receiver.pending.end()
        assert receiver.read == ["one", "<flush>", "<end>"]
        assert not receiver.pending

    run(scene())


def test_a_turn_of_the_loop_processes_at_most_the_budget_of_all() -> None:
    async def scene() -> None:
        budget = TextTurns(10)
        receivers = [Receiver(budget) for _ in range(3)]
        for receiver in receivers:
            receiver.pending.push("x" * 25)
        seen = 10
        while any(receiver.pending for receiver in receivers):
            before = seen
            await turns(1)
            seen = sum(len(receiver.text) for receiver in receivers)
            assert seen - before <= 10
        assert [len(receiver.text) for receiver in receivers] == [25, 25, 25]
        assert budget.left <= 10

    run(scene())


@given(
    st.lists(st.one_of(st.text("ab", max_size=30), st.just("<flush>")), max_size=20),
    st.lists(st.booleans(), min_size=20, max_size=20),
    st.integers(1, 40),
)
def test_order_of_text_flush_and_end_is_kept(sent: list[str], pauses: list[bool], characters: int) -> None:
    async def scene() -> None:
        receiver = Receiver(TextTurns(characters))
        for item, pause in zip(sent, pauses, strict=False):
            if item == "<flush>":
                receiver.pending.flush()
            else:
                receiver.pending.push(item)
            if pause:
                await turns(1)
        receiver.pending.end()
        await settle()

        def joined(parts: list[str]) -> str:
            text = "".join(parts)
            while "<flush><flush>" in text:
                text = text.replace("<flush><flush>", "<flush>")
            return text

        assert joined(receiver.read) == joined([*sent, "<end>"])

    run(scene())


@pytest.mark.parametrize(
    ("error", "kind"), [(EmptyText("nothing"), EmptyText), (RuntimeError("a defect"), GenerationFailed)]
)
def test_error_of_pending_text_is_reported(error: Exception, kind: type[VoxgateError]) -> None:
    async def scene() -> None:
        receiver = Receiver(TextTurns(10), error=error)
        receiver.pending.push("x" * 25)
        receiver.pending.end()
        await settle()
        assert [type(each) for each in receiver.errors] == [kind]

    run(scene())


def test_error_of_text_within_the_budget_is_raised() -> None:
    async def scene() -> None:
        receiver = Receiver(TextTurns(FLUSH_CHARACTERS), error=EmptyText("nothing"))
        with pytest.raises(EmptyText):
            receiver.pending.end()
        assert receiver.errors == []

    run(scene())


def test_cleared_text_is_not_processed() -> None:
    async def scene() -> None:
        receiver = Receiver(TextTurns(10))
        receiver.pending.push("x" * 25)
        receiver.pending.clear()
        await settle()
        assert receiver.text == "x" * 10
        assert not receiver.pending

    run(scene())


def test_text_pending_for_one_utterance_is_bounded_by_what_was_pushed() -> None:
    async def scene() -> None:
        receiver = Receiver(TextTurns(1))
        for _ in range(100):
            receiver.pending.push("x")
            for _ in range(10):
                receiver.pending.flush()
        assert len(receiver.pending._waiting) <= 200
        await settle()

    run(scene())
