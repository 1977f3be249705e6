"""The checkpoints of one utterance: those that it sends while it speaks, and the one with which it began elsewhere."""

from __future__ import annotations

import hmac
import math
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from voxgate.codecs.format import OutputFormat
from voxgate.pipeline.errors import CheckpointRefused, UnsupportedOption
from voxgate.pipeline.interface import CodeRun, Speech, SpeechRequest

from ...errors import CheckpointElsewhere
from .format import (
    KEY_ID_BYTES,
    LIFE_S,
    Chain,
    Head,
    digest,
    pack_head,
    pack_runs,
    read_key_id,
    unpack_head,
    unpack_runs,
)

INTERVAL_S = 1.0
"""Seconds between the checkpoints of an utterance: so much at most is generated again after the loss of a replica."""
MAX_FRAMES = 4096
"""Most frames in a checkpoint, 5.5 minutes and 100 kB: those behind are generated again."""


def restorable(audio_format: OutputFormat, *, raw: bool) -> bool:
    """Whether an utterance can go on elsewhere: raw audio has no numbers, and each Ogg stream a random one."""
    return not raw and audio_format.codec != "ogg_opus"


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Makes and checks the checkpoints of one caller's utterances.

    `derive_key`: returns what authenticates checkpoints of the API key with that hash; None stands for no key. `model`:
    the identity of the voice model. `clock`: seconds of the time of day, which all replicas share.
    """

    derive_key: Callable[[str | None], bytes]
    model: str
    key_hash: str | None = None
    clock: Callable[[], float] = field(default=time.time)

    def for_key(self, key_hash: str | None) -> Checkpoints:
        """The checkpoints of clients with that key."""
        return replace(self, key_hash=key_hash)

    def trail(self, request: SpeechRequest, audio_format: OutputFormat, voice_digest: str) -> Trail:
        """Begins the trail of an utterance that is `restorable`. `voice_digest`: of a cloned voice."""
        options = (
            request.voice.lower(),
            voice_digest,
            request.language.lower(),
            request.instructions,
            request.layout.value,
            request.sampling,
            request.max_frames,
            request.trim_silence,
            request.normalise,
            [dialect.value for dialect in request.markup],
            request.prosody,
            [lexicon.digest for lexicon in request.lexica],
            audio_format,
        )
        return CheckpointTrail(self, repr(options))


class Trail:
    """The trail of an utterance without checkpoints."""

    prepaid = 0
    """Characters that are charged before their text comes."""

    def restore(self, seed: int | None, characters: int) -> None:  # noqa: ARG002 - nothing is restored
        """The client has audio of an utterance with `seed`, and pays for so much of its text now.

        Raises UnsupportedOption.
        """
        raise UnsupportedOption(
            "restore requires a session with ?resume=new&checkpoints=1, a framing of packets, and no ogg_opus",
            param="type",
        )

    def present(self, parts: Sequence[str]) -> None:  # noqa: ARG002 - as above
        """Takes the next parts that the client has; the first of all is the head.

        Raises CheckpointRefused, CheckpointElsewhere.
        """
        raise CheckpointRefused("parts of a checkpoint must come behind restore and before its utterance speaks")

    def request(self, request: SpeechRequest) -> SpeechRequest:
        """Returns `request` with the codes that are known. Raises CheckpointRefused for a checkpoint that expired."""
        return request

    def uncharged(self, characters: int) -> int:
        """Returns how many of the next characters of text are still to be charged."""
        return characters

    def rewind(self, past: Sequence[CodeRun], seed: int) -> list[str]:  # noqa: ARG002 - as above
        """The utterance goes on behind these codes, with other text: returns the parts of the checkpoint up to there.

        Those before are void.
        """
        return []

    def begin_again(self) -> None:
        """The utterance has other text before it speaks here: what was presented of its speech elsewhere is void."""

    def due(self, speech: Speech, now_s: float) -> list[str]:  # noqa: ARG002 - as above
        """Returns the parts to send now: the head at once, codes each INTERVAL_S; at infinity all, and then no more."""
        return []


NO_TRAIL = Trail()


class CheckpointTrail(Trail):
    """The trail of an utterance with checkpoints. Synchronous; time is an argument."""

    def __init__(self, checkpoints: Checkpoints, options: str) -> None:
        """`options`: all that decides how its text sounds, but the seed."""
        self._key = key = checkpoints.derive_key(checkpoints.key_hash)
        self._key_id = hmac.digest(key, b"name", "sha256")[:KEY_ID_BYTES]
        self._model = digest(checkpoints.model.encode())
        self._clock, self._options = checkpoints.clock, options
        self._chain = Chain(key)
        self._begun = False
        """Whether there is a head, of this gateway or of another one."""
        self._due_s = -math.inf
        self._past: list[CodeRun] = []
        self._frames = 0
        """In all parts."""
        self._restoring = False
        """Whether parts of another gateway may come."""
        self._seed: int | None = None
        """That of the utterance elsewhere."""
        self._expires_s = 0
        """Expiry of the last part that was presented; 0 without one."""

    # From a checkpoint of another gateway

    def restore(self, seed: int | None, characters: int) -> None:
        self._seed, self.prepaid, self._restoring = seed, characters, True

    def present(self, parts: Sequence[str]) -> None:
        if not self._restoring:
            super().present(parts)
        for part in parts:
            if not self._begun:
                self._check_head(part)
                continue
            kind, body, self._expires_s = self._chain.open(part)
            runs = unpack_runs(kind, body)
            self._frames += _frames(runs)
            if self._frames > MAX_FRAMES:
                raise CheckpointRefused(f"a checkpoint must have at most {MAX_FRAMES} frames, got {self._frames}")
            self._past += runs

    def _check_head(self, part: str) -> None:
        if (key_id := read_key_id(part)) is not None and not hmac.compare_digest(key_id, self._key_id):
            raise CheckpointRefused("the checkpoint must be of the same API key and of a gateway with the same secret")
        kind, body, self._expires_s = self._chain.open(part)
        head = unpack_head(kind, body)
        if head.model != self._model:
            raise CheckpointElsewhere(
                f"the model of the checkpoint must be {self._model.hex()[:8]}, got {head.model.hex()[:8]}"
            )
        if head.request != self._request_digest(self._seed):
            raise CheckpointRefused("voice, options, seed and format must be those of the checkpoint's utterance")
        self._begun = True

    def request(self, request: SpeechRequest) -> SpeechRequest:
        if self._restoring and (late_s := self._clock() - self._expires_s) > 0:
            raise CheckpointRefused(f"a checkpoint must be used within {LIFE_S} s, it expired {late_s:.0f} s ago")
        past, self._past, self._restoring = tuple(self._past), [], False
        return replace(request, keep_codes=True, past=past)

    def uncharged(self, characters: int) -> int:
        prepaid = min(self.prepaid, characters)
        self.prepaid -= prepaid
        return characters - prepaid

    # To the client

    def due(self, speech: Speech, now_s: float) -> list[str]:
        parts = []
        expires_s = int(self._clock()) + LIFE_S
        if not self._begun:
            self._begun, self._due_s = True, now_s + INTERVAL_S
            parts.append(self._head(speech.seed, expires_s))
        elif now_s < self._due_s or self._due_s == math.inf:
            return []
        if now_s >= self._due_s:
            self._due_s = now_s + INTERVAL_S
            parts += self._codes(speech.take_codes(), expires_s)
        return parts

    def rewind(self, past: Sequence[CodeRun], seed: int) -> list[str]:
        self._chain, self._begun, self._frames = Chain(self._key), True, 0
        expires_s = int(self._clock()) + LIFE_S
        if _frames(past) > MAX_FRAMES:
            self._frames = MAX_FRAMES + 1
            return []  # what was cut cannot be made again
        return [self._head(seed, expires_s), *self._codes(past, expires_s)]

    def begin_again(self) -> None:
        self._chain, self._begun, self._restoring, self._frames = Chain(self._key), False, False, 0
        self._past = []

    def _head(self, seed: int, expires_s: int) -> str:
        head = Head(self._model, self._request_digest(seed), self._key_id, secrets.token_bytes(8))
        return self._chain.seal(pack_head(head), expires_s)

    def _codes(self, runs: Sequence[CodeRun], expires_s: int) -> list[str]:
        self._frames = min(self._frames + _frames(runs), MAX_FRAMES + 1)
        if self._frames > MAX_FRAMES:
            return []
        return [self._chain.seal(part, expires_s) for part in pack_runs(runs)]

    def _request_digest(self, seed: int | None) -> bytes:
        return digest(f"{seed} {self._options}".encode())


def _frames(runs: Sequence[CodeRun]) -> int:
    """Frames of runs; the end of a generation without frames counts as one, so that their number is bounded too."""
    return sum(max(1, len(run.codes)) for run in runs)
