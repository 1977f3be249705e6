"""How many files this process may hold open: a socket is one, and many systems allow 1024 unless asked for more."""
# TODO-DOC `voxgate serve`: settings from flags, the voice beside the gateway, one address to open at the end.

from __future__ import annotations

import argparse
import asyncio
import errno
import logging
import os
import resource
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from voxgate.gateway.settings import Settings, SettingsError, settings_from
from voxgate.pipeline.errors import VoxgateError
from voxgate.pipeline.interface import EngineState

from .connection import API_KEY_VARIABLE
from .flags import add_flags, given_flags

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from voxgate.gateway.server import GatewayServer
    from voxgate.pipeline.cloning.library import VoiceLibrary, VoiceRegistry
    from voxgate.pipeline.synthesizer import QwenSynthesizer
    from voxgate.pipeline.voice_model import SynthesizerOptions


RESERVED_DESCRIPTORS = 512
"""For everything that is no client's socket: the engine's start alone takes dozens."""

log = logging.getLogger(__name__)


def raise_file_descriptor_limit(sockets: int) -> None:
    """Have room for so many WebSockets and as many connections of plain HTTP, as far as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * sockets + RESERVED_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        if allowed < needed:
            log.warning(
                "only %d open files are allowed, %d sockets may need %d: see `ulimit -n`", hard, sockets, needed
            )


EPILOG = """Every flag can also be set in the environment (--send-ahead-ms as VOXGATE_SEND_AHEAD_MS) or in the file
given with --config (send_ahead_ms = 400). A flag beats the environment, the environment beats the file.

examples:
  voxgate serve --port 9000
  voxgate serve --host 0.0.0.0 --checkpoint Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice
"""
_SCRIPT_VARIABLES = ("VOXGATE_VENV", "VOXGATE_ACCELERATOR", "VOXGATE_SETUP_LOCKED")
_TEST_VARIABLE_PREFIX = "VOXGATE_TEST_"
"""How the names begin that only tests and their scripts read."""
PROGRESS_S = 5.0
POLL_S = 0.1
MAX_AUTO_WORKERS = 12
"""Workers where nobody says how many."""


class ModelStatus(Protocol):
    """A voice model on its way."""

    @property
    def state(self) -> EngineState: ...

    @property
    def capacity(self) -> int:
        """Utterances at once."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with settings")
    add_flags(parser, Settings)


def settings_in(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what clients, scripts and tests read: every other VOXGATE_ name has to be a gateway's setting."""
    others = (API_KEY_VARIABLE, *_SCRIPT_VARIABLES)
    return {
        name: value
        for name, value in environment.items()
        if name not in others and not name.startswith(_TEST_VARIABLE_PREFIX)
    }


def run(parsed: argparse.Namespace) -> int:
    try:
        settings = settings_from(given_flags(parsed, Settings), parsed.config, settings_in(os.environ))
        _run(settings)
    except SettingsError as error:  # some show only when what they name is opened
        return _complain(str(error), status=2)
    except VoxgateError as error:
        return _complain(str(error))
    except OSError as error:
        if error.filename is not None:
            return _complain(f"{error.filename}: {error.strerror}")
        if error.errno == errno.EADDRINUSE:
            where = f"{settings.host}:{settings.port}"
            return _complain(f"another program listens on {where} already: end it, or take another port with --port N")
        return _complain(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}")
    return 0


def _run(settings: Settings) -> None:
    import uvloop

    uvloop.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    from voxgate.gateway.observability import log
    from voxgate.pipeline.checkpoint import checkpoint_folder
    from voxgate.pipeline.gc_freeze import freeze_gc

    log.configure(settings.log_level, settings.log_format)
    raise_file_descriptor_limit(settings.sockets)
    if settings.device == "cuda" and (lacking := cuda_obstacle()):
        raise SettingsError(f"device: {lacking}")
    folder = await asyncio.to_thread(checkpoint_folder, settings.checkpoint)
    synthesizer = build_synthesizer(settings, folder)
    library = build_library(settings, folder, synthesizer)
    await library.refresh()
    watching = asyncio.create_task(library.watch(), name="voices")
    freeze_gc()
    try:
        if (workers := choose_workers(settings)) > 1:
            await _serve_by_workers(settings, synthesizer, folder, workers, library)
        else:
            await _serve_alone(settings, synthesizer, library)
    finally:
        watching.cancel()


async def _serve_alone(settings: Settings, synthesizer: QwenSynthesizer, library: VoiceLibrary) -> None:
    from voxgate.codecs.encode import PacketEncoder
    from voxgate.gateway.observability.tracing import tracing_from
    from voxgate.gateway.server import Gateway

    synthesizer.run_ahead()
    tracing = tracing_from(os.environ, asyncio.get_running_loop().time)
    observers = [] if tracing is None else [tracing]
    uploads = library if settings.voice_uploads else None
    try:
        await _serve_and_tell(settings, Gateway(settings, synthesizer, PacketEncoder, observers, uploads), synthesizer)
    finally:
        if tracing is not None:
            await asyncio.to_thread(tracing.close)


async def _serve_by_workers(
    settings: Settings, synthesizer: QwenSynthesizer, folder: Path, workers: int, library: VoiceLibrary
) -> None:
    from voxgate.gateway.workers.speech_process import SpeechProcess

    synthesizer.run_ahead()
    command = [sys.executable, "-m", "voxgate.cli.serve_worker"]
    gateway = SpeechProcess(settings, synthesizer, folder, workers, command, library)
    await _serve_and_tell(settings, gateway, gateway)


async def _serve_and_tell(settings: Settings, gateway: GatewayServer, model: ModelStatus) -> None:
    from voxgate.gateway.server import serve_until_signal

    reporting: list[asyncio.Task[None]] = []

    def on_listening(port: int) -> None:
        report = report_progress(
            model, settings.checkpoint, page_address(settings.host, port, tls=settings.tls_certificate is not None)
        )
        reporting.append(asyncio.create_task(report, name="progress"))

    try:
        await serve_until_signal(gateway, on_listening)
    finally:
        for task in reporting:
            task.cancel()


def build_synthesizer(settings: Settings, folder: Path) -> QwenSynthesizer:
    """The voice model in `folder`, not started yet. Raises CheckpointError."""
    from voxgate.pipeline.synthesizer import QwenSynthesizer

    return QwenSynthesizer(folder, synthesizer_options(settings))


def synthesizer_options(settings: Settings) -> SynthesizerOptions:
    """What the settings say of the voice model."""
    from voxgate.pipeline.voice_model import SynthesizerOptions

    threads, workers = settings.threads or 1, choose_workers(settings)
    return SynthesizerOptions(
        slots=settings.slots,
        lookahead_ms=settings.lookahead_ms,
        initial_burst_ms=settings.initial_burst_ms,
        max_characters=settings.max_characters,
        device=choose_device(settings.device),
        talker_threads=threads,
        codec_threads=threads,
        codec_mode=settings.codec_mode,
        left_context=settings.left_context,
        kv_cache_bytes=None if settings.kv_cache_mb is None else settings.kv_cache_mb << 20,
        attached_processes=workers if workers > 1 else 0,
        gpu_memory=settings.gpu_memory,
        own_kernels=settings.gpu_kernels == "own",
        streamed_layers=settings.gpu_layers == "streamed",
        persistent_predictor=settings.gpu_predictor == "whole",
    )


def build_library(
    settings: Settings,
    folder: Path,
    catalog: VoiceRegistry,
    announce: Callable[[], Awaitable[None]] | None = None,
    turn: str | None = None,
) -> VoiceLibrary:
    """The stored voices beside the model in `folder`, none of them offered yet. Raises CheckpointError.

    `announce` is awaited when a voice was made or removed by this process; `turn`: by which processes take turns at it.
    """
    from voxgate.pipeline.cloning.library import VoiceLibrary
    from voxgate.pipeline.cloning.service import CloningService
    from voxgate.pipeline.cloning.speaker_vectors import speaker_space_id
    from voxgate.pipeline.cloning.store import VoiceStore

    space = speaker_space_id(folder)
    cloning = CloningService(
        folder,
        settings.checkpoint,
        max_bytes=settings.voice_upload_mb << 20,
        max_duration_s=settings.voice_upload_s,
        turn=turn,
    )
    store = VoiceStore(settings.voices_dir.expanduser(), settings.voices_limit)
    return VoiceLibrary(store, catalog, space, cloning if space else None, announce)


def choose_workers(settings: Settings) -> int:
    """How many processes serve the sockets: as told, or what the machine suggests."""
    if settings.workers != "auto":
        return settings.workers
    if choose_device(settings.device) == "cpu":
        return 1
    return max(1, min(MAX_AUTO_WORKERS, len(os.sched_getaffinity(0)) // 2))


def choose_device(wanted: str) -> str:
    """ "cpu" or "cuda"; "auto" takes the GPU when there is one and torch was built for it."""
    if wanted != "auto":
        return wanted
    # Asking torch itself would load it, seconds before the first answer on the port.
    return "cpu" if cuda_obstacle() else "cuda"


def cuda_obstacle(device: Path = Path("/dev/nvidiactl")) -> str:
    """What stands in the way of a GPU and what helps; empty when nothing does."""
    if not device.exists():
        return "there is no NVIDIA GPU here; leave --device away to speak on the CPU"
    if "+cpu" in version("torch"):
        return "what is installed is for a CPU: remove .venv and run VOXGATE_ACCELERATOR=cuda scripts/setup"
    return ""


async def report_progress(
    synthesizer: ModelStatus, checkpoint: str, address: str, interval_s: float = PROGRESS_S
) -> None:
    """Say that the voice is loading, for as long as it is, and then where to go."""
    began = said_at = time.monotonic()
    _tell(f"listening at {address}, loading the voice '{checkpoint}'")
    while synthesizer.state is EngineState.STARTING:
        await asyncio.sleep(POLL_S)
        if time.monotonic() - said_at >= interval_s:
            said_at = time.monotonic()
            _tell(f"still loading ({said_at - began:.0f} s)")
    if synthesizer.state.speaks:
        seconds = time.monotonic() - began
        _tell(f"ready after {seconds:.1f} s for {synthesizer.capacity} utterances at once: open {address}")


def page_address(host: str, port: int, *, tls: bool = False) -> str:
    """What to type into a browser on this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    host = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{host}:{port}/"


def _tell(text: str) -> None:
    print(f"voxgate: {text}", file=sys.stderr, flush=True)


def _complain(text: str, status: int = 1) -> int:
    print(f"voxgate serve: {text}", file=sys.stderr)
    return status
