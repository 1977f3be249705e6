"""A worker process of `voxgate serve`: `python -m voxgate.cli.serve_worker DESCRIPTOR`.

DESCRIPTOR is the number of an inherited socket, the worker's end of its link to the speech process.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from functools import partial
from pathlib import Path

from voxgate.codecs.encode import PacketEncoder
from voxgate.gateway.observability import log
from voxgate.gateway.observability.tracing import tracing_from
from voxgate.gateway.settings import Settings
from voxgate.gateway.workers.worker import GatewayWorker, WorkerConnection, announce_voices
from voxgate.pipeline.ipc.process_death import ignore_group_signals, kill_with_parent
from voxgate.pipeline.remote_synthesizer import RemoteSynthesizer

from .serve import build_library, synthesizer_options


async def serve(sock: socket.socket) -> None:
    """Serves until the speech process ends the worker, or ends itself."""
    connected = WorkerConnection()
    init = await connected.open(sock)
    settings, folder = Settings.model_validate_json(init.settings), Path(init.folder)
    log.configure(settings.log_level, settings.log_format)
    tracing = tracing_from(os.environ, asyncio.get_running_loop().time)
    synthesizer = RemoteSynthesizer(folder, synthesizer_options(settings), connected.link.send)
    announce, lock_name = partial(announce_voices, connected.link), f"voxgate-cloning-{os.getppid()}"
    library = build_library(settings, folder, synthesizer, announce, lock_name)
    await library.refresh()
    observers = [] if tracing is None else [tracing]
    worker = GatewayWorker(init, settings, synthesizer, PacketEncoder, connected.link, library, observers)
    await worker.open()
    connected.hand_over(worker)
    try:
        await worker.run(connected.gone)
    finally:
        if tracing is not None:
            await asyncio.to_thread(tracing.close)


def main(descriptor: str) -> None:
    import uvloop

    ignore_group_signals()
    kill_with_parent()
    uvloop.run(serve(socket.socket(fileno=int(descriptor))))


if __name__ == "__main__":
    main(sys.argv[1])
