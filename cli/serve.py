"""`voxgate serve`: reads the settings, loads the voice model and runs the gateway until a signal ends it."""

from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import errno
import logging
import os
import resource
import signal
import sys
import threading
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from voxgate.gateway.ready_file import ReadyGateway, ready_file, write_ready_file
from voxgate.gateway.settings import Settings, SettingsError, settings_from
from voxgate.pipeline.errors import VoxgateError
from voxgate.pipeline.interface import EngineState

from .failure import fail
from .settings_flags import add_flags, gateway_variables, given_flags

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from voxgate.gateway.server import GatewayServer
    from voxgate.pipeline.cloning.library import VoiceLibrary, VoiceRegistry
    from voxgate.pipeline.synthesizer import QwenSynthesizer
    from voxgate.pipeline.voice_model import SynthesizerOptions

EPILOG = """Every setting can also be given in the environment (--send-ahead-ms as VOXGATE_SEND_AHEAD_MS) or in the
file named by --config (send_ahead_ms = 400). The command line overrides the environment, which overrides the file.

The ready file holds a JSON object with "url", "port", "haproxy_agent_port", "admin_port", "capacity" and "pid". It
appears when the voice model has loaded, and is deleted when the gateway stops. GET /readyz reports the current state.

examples:
  voxgate serve --port 9000
  voxgate serve --host 0.0.0.0 --checkpoint Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice
  voxgate serve --port 0 --ready-file /run/voxgate.json
"""
RESERVED_DESCRIPTORS = 512
"""File descriptors for everything but clients' sockets: starting the engine alone takes dozens."""
PROGRESS_INTERVAL_S = 5.0
POLL_INTERVAL_S = 0.1
START_HISTORY = Path("~/.cache/voxgate")
"""Folder that keeps how long the last start of each checkpoint took, for the time left that a start shows."""
MAX_AUTO_WORKERS = 12
"""Upper limit of `--workers auto`."""
ENGINE_CORES = 2
"""Cores of a machine with a GPU that `--workers auto` leaves for the engine and the speech process: with half the
cores, workers were saturated and the engine was not."""

log = logging.getLogger(__name__)

T = TypeVar("T")


class ModelStatus(Protocol):
    """State of a voice model that may still be loading."""

    @property
    def state(self) -> EngineState: ...

    @property
    def capacity(self) -> int:
        """Utterances that can be spoken at once."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with settings.")
    parser.add_argument(
        "--ready-file",
        type=Path,
        metavar="FILE",
        help="File to write when ready, with the address as JSON (see below).",
    )
    add_flags(parser, Settings)


def open_standard_descriptors() -> None:
    """Opens the null device as standard input, output and error where they are closed.

    A socket would get their numbers, and the event loop, which never closes these, would abort the process.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


def run(parsed: argparse.Namespace) -> int:
    open_standard_descriptors()
    # Until the gateway reloads its keys at SIGHUP, the signal must not end it.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        settings = settings_from(given_flags(parsed, Settings), parsed.config, gateway_variables(os.environ))
        _run(settings, parsed.ready_file)
    except SettingsError as error:  # some are detected only when the file they name is opened
        return fail("serve", str(error), status=2)
    except VoxgateError as error:
        return fail("serve", str(error))
    except OSError as error:
        if error.filename is not None:
            return fail("serve", f"{error.filename}: {error.strerror}")
        address = f"{settings.host}:{settings.port}"
        if error.errno == errno.EADDRINUSE:
            return fail(
                "serve", f"{address} is already in use: stop the other program, or choose another port with --port N"
            )
        return fail("serve", f"cannot listen on {address}: {error.strerror}")
    return 0


def _run(settings: Settings, ready_path: Path | None) -> None:
    import uvloop

    try:
        with ready_file(ready_path):
            uvloop.run(_serve(settings, ready_path))
    except asyncio.CancelledError:
        # A signal arrived before the gateway listened. A download has threads that an ordinary exit would wait for.
        logging.shutdown()
        os._exit(0)


async def _serve(settings: Settings, ready_path: Path | None) -> None:
    from voxgate.gateway.access.auth import access_from_settings
    from voxgate.gateway.observability import log as log_output
    from voxgate.gateway.transport.tls import tls_context
    from voxgate.pipeline.checkpoint.checkpoint import checkpoint_folder
    from voxgate.pipeline.gc_freeze import freeze_gc

    loop, serving = asyncio.get_running_loop(), asyncio.current_task()
    assert serving is not None
    for number in (signal.SIGTERM, signal.SIGINT):  # until `serve_until_signal` has handlers of its own
        loop.add_signal_handler(number, serving.cancel)
    log_output.configure(settings.log_level, settings.log_format)
    report_exposure(settings)
    raise_file_descriptor_limit(settings.sockets)
    if settings.device == "cuda" and (obstacle := cuda_obstacle()):
        raise SettingsError(f"device: {obstacle}")
    folder = await _in_daemon_thread(partial(checkpoint_folder, settings.checkpoint))
    synthesizer = build_synthesizer(settings, folder)
    library = build_library(settings, folder, synthesizer)
    await library.refresh()
    # Invalid files are reported before the import of vLLM begins, which delays the end of the process by seconds.
    access_from_settings(settings)
    tls_context(settings)
    watching = asyncio.create_task(library.watch(), name="voices")
    freeze_gc()
    synthesizer.run_ahead()
    try:
        if (workers := choose_workers(settings)) > 1:
            await _serve_by_workers(settings, synthesizer, folder, workers, library, ready_path)
        else:
            await _serve_alone(settings, synthesizer, library, ready_path)
    finally:
        watching.cancel()


async def _in_daemon_thread(call: Callable[[], T]) -> T:
    """Returns `call()` of a thread that the end of the event loop does not wait for, unlike those of `to_thread`.

    Cancelling it leaves the thread running.
    """
    future = concurrent.futures.Future[T]()
    future.set_running_or_notify_cancel()

    def run_call() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run_call, name="checkpoint", daemon=True).start()
    return await asyncio.wrap_future(future)


async def _serve_alone(
    settings: Settings, synthesizer: QwenSynthesizer, library: VoiceLibrary, ready_path: Path | None
) -> None:
    from voxgate.codecs.encode import PacketEncoder
    from voxgate.gateway.observability.tracing import tracing_from
    from voxgate.gateway.server import Gateway

    tracing = tracing_from(os.environ, asyncio.get_running_loop().time)
    observers = [] if tracing is None else [tracing]
    uploads = None if settings.voice_uploads is False else library
    gateway = Gateway(settings, synthesizer, PacketEncoder, observers, uploads)
    try:
        await _serve_and_report(settings, gateway, synthesizer, synthesizer, ready_path)
    finally:
        if tracing is not None:
            await asyncio.to_thread(tracing.close)


async def _serve_by_workers(
    settings: Settings,
    synthesizer: QwenSynthesizer,
    folder: Path,
    workers: int,
    library: VoiceLibrary,
    ready_path: Path | None,
) -> None:
    from voxgate.gateway.workers.speech_process import SpeechProcess

    command = [sys.executable, "-m", "voxgate.cli.serve_worker"]
    gateway = SpeechProcess(settings, synthesizer, folder, workers, command, library)
    await _serve_and_report(settings, gateway, gateway, synthesizer, ready_path)


async def _serve_and_report(
    settings: Settings,
    gateway: GatewayServer,
    model: ModelStatus,
    synthesizer: QwenSynthesizer,
    ready_path: Path | None,
) -> None:
    from voxgate.gateway.server import serve_until_signal

    reporting: list[asyncio.Task[None]] = []

    def on_listening(port: int) -> None:
        reporting.append(asyncio.create_task(report(port), name="progress"))

    async def report(port: int) -> None:
        url = page_address(settings.host, port, tls=settings.tls_certificate is not None)
        ready = await report_progress(model, settings.checkpoint, url, progress=lambda: synthesizer.start_progress)
        if ready and ready_path is not None:
            address = ReadyGateway(
                url, port, gateway.haproxy_agent_port, model.capacity, os.getpid(), gateway.admin_port
            )
            await asyncio.to_thread(write_ready_file, ready_path, address)

    try:
        await serve_until_signal(gateway, on_listening)
    finally:
        for task in reporting:
            task.cancel()


def report_exposure(settings: Settings) -> None:
    """Logs what the configuration leaves open to others."""
    from voxgate.gateway.access.exposure import exposure_warnings

    for warning in exposure_warnings(settings):
        log.warning("%s", warning)


async def report_progress(
    model: ModelStatus,
    checkpoint: str,
    address: str,
    interval_s: float = PROGRESS_INTERVAL_S,
    progress: Callable[[], str] = str,
) -> bool:
    """Prints the progress of loading, and the address once the model has loaded; returns whether it has.

    `progress` returns what the start is doing.
    """
    began = printed_at = time.monotonic()
    _print(f"listening at {address}, loading the voice '{checkpoint}'")
    while model.state is EngineState.STARTING:
        await asyncio.sleep(POLL_INTERVAL_S)
        if time.monotonic() - printed_at >= interval_s:
            printed_at = time.monotonic()
            _print(f"{progress() or 'still loading'} ({printed_at - began:.0f} s)")
    if model.state.speaks:
        seconds = time.monotonic() - began
        _print(f"ready after {seconds:.1f} s for {model.capacity} utterances at once: open {address}")
        return True
    return False


def page_address(host: str, port: int, *, tls: bool = False) -> str:
    """The URL to open in a browser on this machine for a gateway that listens on `host`."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    host = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{host}:{port}/"


def build_synthesizer(settings: Settings, folder: Path) -> QwenSynthesizer:
    """Makes the voice model of the checkpoint in `folder`, not started yet. Raises CheckpointError."""
    from voxgate.pipeline.synthesizer import QwenSynthesizer

    return QwenSynthesizer(folder, synthesizer_options(settings))


def synthesizer_options(settings: Settings) -> SynthesizerOptions:
    """Translates the settings into the voice model's options."""
    from voxgate.pipeline.talker.vllm.config import GpuOptions
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
        start_history=START_HISTORY.expanduser() / f"start-{settings.checkpoint.replace('/', '--')[-100:]}.json",
        gpu=GpuOptions(
            voxgate_kernels=settings.gpu_kernels == "voxgate",
            memory_share=settings.gpu_memory,
            fp8_cache=settings.kv_cache_dtype == "fp8",
        ),
    )


def build_library(
    settings: Settings,
    folder: Path,
    catalog: VoiceRegistry,
    announce: Callable[[], Awaitable[None]] | None = None,
    lock_name: str | None = None,
) -> VoiceLibrary:
    """Makes the library of stored voices for the checkpoint in `folder`; it offers none yet. Raises CheckpointError.

    `announce` is awaited after this process made or removed a voice. Processes with the same `lock_name` make
    voices one at a time.
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
        lock_name=lock_name,
    )
    store = VoiceStore(settings.voices_dir.expanduser(), settings.voices_limit)
    return VoiceLibrary(store, catalog, space, cloning if space else None, announce)


def choose_workers(settings: Settings) -> int:
    """The number of processes that serve the sockets: as set, or as suits this machine."""
    if settings.workers != "auto":
        return settings.workers
    if choose_device(settings.device) == "cpu":
        return 1
    return max(1, min(MAX_AUTO_WORKERS, len(os.sched_getaffinity(0)) - ENGINE_CORES))


def choose_device(wanted: str) -> str:
    """ "cpu" or "cuda"; "auto" chooses the GPU when there is one and the installed torch supports it."""
    if wanted != "auto":
        return wanted
    # Asking torch would import it, which takes seconds before the port answers.
    return "cpu" if cuda_obstacle() else "cuda"


def cuda_obstacle(device: Path = Path("/dev/nvidiactl")) -> str:
    """The reason why a GPU cannot be used, with the remedy; empty when it can."""
    if not device.exists():
        return "this machine has no NVIDIA GPU: omit --device to run on the CPU"
    if "+cpu" in version("torch"):
        return "the installed torch is a CPU build: remove .venv and run VOXGATE_ACCELERATOR=cuda scripts/setup"
    return ""


def raise_file_descriptor_limit(sockets: int) -> None:
    """Raises the limit on open files to fit `sockets` WebSockets and as many HTTP connections, as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * sockets + RESERVED_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        if allowed < needed:
            log.warning("open files limited to %d, %d sockets may need %d: see `ulimit -n`", hard, sockets, needed)


def _print(text: str) -> None:
    print(f"voxgate: {text}", file=sys.stderr, flush=True)
