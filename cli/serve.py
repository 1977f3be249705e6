"""`voxgate serve`: settings from flags, the voice beside the gateway, one address to open at the end."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from ..gateway.settings import Settings, SettingsError, settings_from
from ..pipeline.errors import VoxgateError
from ..pipeline.speech import EngineState, Synthesizer
from .flags import add_flags, given_flags
from .reach import KEY_VARIABLE

if TYPE_CHECKING:
    from ..pipeline.cloning.library import Catalog, VoiceLibrary
    from ..pipeline.synthesizer import QwenSynthesizer

EPILOG = """Every flag can also be set in the environment (--lead-ms as VOXGATE_LEAD_MS) or in the file
given with --config (lead_ms = 400). A flag beats the environment, the environment beats the file.

examples:
  voxgate serve --port 9000
  voxgate serve --host 0.0.0.0 --checkpoint Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice
"""
NO_SETTINGS = ("VOXGATE_VENV", "VOXGATE_ACCELERATOR", KEY_VARIABLE)
"""What scripts/setup and the clients read; every other VOXGATE_ name in the environment has to be a setting."""
PROGRESS_S = 5.0
POLL_S = 0.1


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file with settings")
    add_flags(parser, Settings)


def run(parsed: argparse.Namespace) -> int:
    environment = {name: value for name, value in os.environ.items() if name not in NO_SETTINGS}
    try:
        settings = settings_from(given_flags(parsed, Settings), parsed.config, environment)
    except SettingsError as error:
        print(f"voxgate serve: {error}", file=sys.stderr)
        return 2
    try:
        import uvloop

        uvloop.run(_serve(settings))
    except VoxgateError as error:
        print(f"voxgate serve: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(
            f"voxgate serve: cannot listen on {settings.host}:{settings.port}: {error.strerror}",
            file=sys.stderr,
        )
        return 1
    return 0


async def _serve(settings: Settings) -> None:
    from ..codecs.encode import PacketEncoder
    from ..gateway import log
    from ..gateway.server import serve
    from ..gateway.tracing import tracing_from
    from ..pipeline.hub import checkpoint_folder

    log.configure(settings.log_level, settings.log_format)
    tracing = tracing_from(os.environ, asyncio.get_running_loop().time)
    folder = await asyncio.to_thread(checkpoint_folder, settings.checkpoint)
    synthesizer = build_synthesizer(settings, folder)
    library = build_library(settings, folder, synthesizer)
    await library.refresh()
    watching = asyncio.create_task(library.watch(), name="voices")
    reporting: list[asyncio.Task[None]] = []

    def on_listening(port: int) -> None:
        report = report_progress(synthesizer, settings.checkpoint, page_address(settings.host, port))
        reporting.append(asyncio.create_task(report, name="progress"))

    observers = [] if tracing is None else [tracing]
    uploads = library if settings.voice_uploads else None
    # What start-up made stays for good; a full collection would hold the event loop up to look through all of it.
    gc.collect()
    gc.freeze()
    try:
        await serve(settings, synthesizer, PacketEncoder, on_listening, observers, uploads)
    finally:
        for task in (watching, *reporting):
            task.cancel()
        if tracing is not None:
            await asyncio.to_thread(tracing.close)


def build_synthesizer(settings: Settings, folder: Path) -> QwenSynthesizer:
    """The voice model in `folder`, not started yet. Raises CheckpointError."""
    from ..pipeline.synthesizer import QwenSynthesizer, SynthesizerOptions

    device = choose_device(settings.device)
    threads = settings.threads or 1
    options = SynthesizerOptions(
        slots=settings.slots,
        ahead_ms=settings.ahead_ms,
        max_characters=settings.max_characters,
        device=device,
        talker_threads=threads,
        codec_threads=threads,
        codec_mode=settings.codec_mode,
        left_context=settings.left_context,
        kv_cache_bytes=None if settings.kv_cache_mb is None else settings.kv_cache_mb << 20,
    )
    return QwenSynthesizer(folder, options)


def build_library(settings: Settings, folder: Path, catalog: Catalog) -> VoiceLibrary:
    """The stored voices beside the model in `folder`, none of them offered yet. Raises CheckpointError."""
    from ..pipeline.cloning.library import VoiceLibrary
    from ..pipeline.cloning.service import CloningService
    from ..pipeline.cloning.space import speaker_space
    from ..pipeline.cloning.store import VoiceStore

    space = speaker_space(folder)
    cloning = CloningService(
        folder,
        settings.checkpoint,
        most_bytes=settings.voice_upload_mb << 20,
        most_s=settings.voice_upload_s,
    )
    store = VoiceStore(settings.voices_dir.expanduser(), settings.voices_limit)
    return VoiceLibrary(store, catalog, space, cloning if space else None)


def choose_device(wanted: str) -> str:
    """ "cpu" or "cuda"; "auto" takes the GPU when there is one and torch was built for it."""
    if wanted != "auto":
        return wanted
    # Asking torch itself would load it, seconds before the first answer on the port.
    return "cuda" if Path("/dev/nvidiactl").exists() and "+cpu" not in version("torch") else "cpu"


async def report_progress(
    synthesizer: Synthesizer, checkpoint: str, address: str, interval_s: float = PROGRESS_S
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


def page_address(host: str, port: int) -> str:
    """What to type into a browser on this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def _tell(text: str) -> None:
    print(f"voxgate: {text}", file=sys.stderr, flush=True)
