"""What an error of a client's message does: it refuses the message or ends the utterance, and may close the socket."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

from pydantic import ValidationError
from voxgate.pipeline.errors import BadMessage, GenerationFailed, VoxgateError

from ..access.rate_policy import RatePolicy
from ..errors import UtteranceEnded
from ..messages.client import ClientMessage
from ..messages.connection import CloseCode
from ..messages.parsing import MessageReference, first_error, quoted_path
from .active_utterances import ActiveUtterances, Termination
from .effects import EffectQueue
from .lifecycle import IllegalEvent
from .protocol import ProtocolAction

log = logging.getLogger(__name__)


class Refusals:
    """The errors of one session's messages. Synchronous; time is an argument."""

    def __init__(
        self,
        session: str,
        rate_policy: RatePolicy,
        utterances: ActiveUtterances,
        effects: EffectQueue,
        termination: Termination,
    ) -> None:
        self._session, self._rate_policy = session, rate_policy
        self._utterances, self._effects, self._termination = utterances, effects, termination

    def translate(
        self,
        receive: Callable[[], Iterable[ProtocolAction]],
        refers_to: Callable[[], MessageReference],
        now_s: float,
    ) -> Iterator[ProtocolAction]:
        """Yields what a wire protocol makes of a message, up to its error, which refuses the message."""
        refusal: VoxgateError
        try:
            yield from receive()
            return
        except VoxgateError as error:
            refusal = error
        except ValidationError as invalid:
            # A value that the service's own messages may have, and those of the gateway may not.
            reason, path, _ = first_error(invalid)
            param = quoted_path(path)
            refusal = BadMessage(f"{param}: {reason}" if param else reason, param=param)
        except Exception:
            log.exception("reading a message failed", extra={"session": self._session})
            refusal = GenerationFailed("the message could not be handled")
        self.reject(refusal, refers_to(), now_s)

    def guard(self, message: ClientMessage, apply: Callable[[], None], now_s: float) -> None:
        """Calls `apply`, which applies a message; its error either refuses the message or ends the utterance."""
        reference = MessageReference(getattr(message, "utterance", None), message.id)
        try:
            apply()
        except IllegalEvent as illegal:
            reason = f"utterance {reference.utterance!r} is {illegal.state} and accepts no {illegal.event}"
            self.reject(UtteranceEnded(reason), reference, now_s)
        except VoxgateError as error:
            if error.ends_utterance:
                self._fail(error, reference)
            else:
                self.reject(error, reference, now_s)
        except Exception:
            # A defect in the handling of one utterance must not end the others.
            log.exception("handling a message failed", extra={"session": self._session})
            self._fail(GenerationFailed("the message could not be handled"), reference)

    def reject(self, error: VoxgateError, reference: MessageReference, now_s: float) -> None:
        """Sends an error that refuses one message; closes the socket when there were too many."""
        name = reference.utterance
        utterance = None if name is None else self._utterances.get(name)
        characters = None if utterance is None else utterance.characters
        self._effects.send_error(error, name, message_id=reference.id, characters=characters)
        if reason := self._rate_policy.close_reason(error, now_s):
            self._effects.close(CloseCode.POLICY, reason)

    def _fail(self, error: VoxgateError, reference: MessageReference) -> None:
        """Ends the active utterance of the message with `error`; sends the error alone when there is none."""
        utterance = self._utterances.get(reference.utterance) if reference.utterance is not None else None
        if utterance is None or utterance.ended:
            self._effects.send_error(error, reference.utterance, message_id=reference.id)
        else:
            self._termination.fail(utterance, error, reference.id)
