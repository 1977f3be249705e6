"""Finds the fastest way to train the decoder on this machine, while the tokenizer is still being trained.

Compiling takes minutes and is not always worth it; so each way is timed, and none gets longer than there is.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import torch

from .causal import use_products
from .decoder_update import DecoderTraining
from .discriminators import judges_loss, maker_loss
from .files import Progress
from .sizes import CODEBOOKS, FRAME_SAMPLES

_LEAST_S = 25.0
"""With less time than this left, compiling is not begun."""


class OutOfTime(Exception):
    """Compiling took longer than it was given."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises OutOfTime in the main thread after so many seconds, and again until the block is left."""

    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise OutOfTime(f"not done within {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, 2.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def choose_fastest(training: DecoderTraining, windows: int, frames: int, seconds: float, progress: Progress) -> None:
    """Leaves `training` set to the fastest way found within `seconds`, its weights as they were."""
    began = time.monotonic()
    torch.backends.cudnn.benchmark = True  # shapes never change here
    device = next(training.decoder.parameters()).device
    kept = [
        {name: value.clone() for name, value in model.state_dict().items()}
        for model in (training.decoder, training.judges)
    ]
    codes = torch.randint(0, 512, (windows, CODEBOOKS, frames), device=device)
    noise = torch.randn(windows, frames * FRAME_SAMPLES, device=device) * 0.1

    def update_ms(judged: bool) -> float:
        for _ in range(3):
            training.update(codes, noise, windows // 4, 0.0, 0, judged=judged)
        _finish(device)
        start = time.monotonic()
        for _ in range(6):
            training.update(codes, noise, windows // 4, 0.0, 0, judged=judged)
        _finish(device)
        return 1000 * (time.monotonic() - start) / 6

    def attempt(
        name: str, judged: bool, prepare: Callable[[], None], best_ms: float, give_up: Callable[[], None]
    ) -> float:
        """The better of `best_ms` and what `prepare` leads to; `give_up` undoes it."""
        left = seconds - (time.monotonic() - began)
        if left < _LEAST_S:
            progress.say(way=name, skipped=True)
            return best_ms
        try:
            with time_limit(left):
                prepare()
                taken_ms = update_ms(judged)
        except Exception as error:  # the compiler's errors are of many kinds, and all mean: go on without
            progress.say(way=name, failed=f"{type(error).__name__}: {error}"[:200])
            taken_ms = float("inf")
            training.judges.requires_grad_(True)  # an update that broke off may have left them fixed
        else:
            progress.say(way=name, judged=judged, update_ms=taken_ms, worked_s=time.monotonic() - began)
        if taken_ms >= best_ms:
            give_up()
        return min(taken_ms, best_ms)

    plain_ms, judged_ms = update_ms(False), update_ms(True)
    progress.say(way="plain", update_ms=plain_ms, judged_ms=judged_ms, worked_s=time.monotonic() - began)
    decoder = training.decoder

    def compiled_convolutions() -> None:
        training.decode = torch.compile(decoder, dynamic=False)

    def plain() -> None:
        training.decode = decoder

    def compiled_judges() -> None:
        training.judge = torch.compile(judges_loss, dynamic=False)
        training.please = torch.compile(maker_loss, dynamic=False)

    def plain_judges() -> None:
        training.judge, training.please = judges_loss, maker_loss

    best_ms = attempt("compiled decoder", False, compiled_convolutions, plain_ms, plain)
    judged_ms = min(judged_ms, update_ms(True))
    attempt("compiled judges", True, compiled_judges, judged_ms, plain_judges)
    before = training.decode

    def compiled_products() -> None:
        use_products(decoder, True)
        training.decode = torch.compile(decoder, dynamic=False)

    def convolutions() -> None:
        use_products(decoder, False)
        training.decode = before

    attempt("compiled decoder, products", False, compiled_products, best_ms, convolutions)
    for model, state in zip((training.decoder, training.judges), kept, strict=True):
        model.load_state_dict(state)
    progress.say(chosen_ms=update_ms(False), judged_ms=update_ms(True), worked_s=time.monotonic() - began)
    for model, state in zip((training.decoder, training.judges), kept, strict=True):
        model.load_state_dict(state)


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
