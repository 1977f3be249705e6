"""A process of listeners: its load as JSON on standard input, samples as JSON lines on standard output.

It says that it is ready, and begins at the time that it is told then.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from .crowd import run_crowd
from .plan import Load, Shares
from .sample import Sample
from .targets import opener
from .targets.line import Line, TargetOptions

READY = b"ready\n"
_LAG_PERIOD_S = 0.02


def encode(load: Load) -> str:
    return json.dumps(asdict(load))


def decode(line: str) -> Load:
    fields: dict[str, Any] = json.loads(line)
    nested = {"options": TargetOptions(**fields["options"]), "shares": Shares(**fields["shares"])}
    return Load(**{**fields, **nested})


async def _run(load: Load, open_line: Callable[[TargetOptions], Awaitable[Line]], begin_s: float) -> None:
    """`begin_s` is on time.monotonic, which all processes of a machine share."""
    loop = asyncio.get_running_loop()
    lags_ms: list[float] = []
    probing = loop.create_task(_probe(lags_ms))
    begin_s += loop.time() - time.monotonic()
    await run_crowd(load, begin_s, lambda: open_line(load.options), _report, time.monotonic)
    probing.cancel()
    used = time.process_time()
    print(json.dumps({"lags_ms": lags_ms, "cpu_s": used}), flush=True)


async def _probe(lags_ms: list[float]) -> None:
    """How late this process's own event loop is: measured times are worth nothing when it is."""
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + _LAG_PERIOD_S
        await asyncio.sleep(_LAG_PERIOD_S)
        lags_ms.append(round(1000 * (loop.time() - due_s), 2))


def _report(sample: Sample) -> None:
    print(sample.to_json(), flush=True)


def main() -> int:
    import uvloop

    load = decode(sys.stdin.readline())
    open_line = opener(load.target)
    print(READY.decode(), end="", flush=True)
    uvloop.run(_run(load, open_line, float(sys.stdin.readline())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
