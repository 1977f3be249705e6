"""Compiles the GPU kernels that an engine will launch, in other processes, while vLLM starts.

The engine would compile them at their first launch, one after the other, for minutes. It finds them in Triton's cache
instead, and still compiles what is missing there, so nothing depends on this. The kernels of a codec whose fast paths
fail their self-tests are compiled in the same way, once it is known.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxgate.codecs.neural.checkpoint import CodecFormatError
from voxgate.codecs.neural.cuda.tiles import ChipLimits

from ...errors import VoxgateError
from ...ipc.codec_wire import CodecWorkerOptions
from ...ipc.process_death import exit_with_owner
from ...ipc.slot_tables import TableShape
from .config import EngineConfig
from .proven import PROVEN_CUDA, installed_version

if TYPE_CHECKING:
    import torch

    from ...cuda.kernel_compiler import Job

log = logging.getLogger(__name__)

DEADLINE_S = 600.0
"""After which compiling ends; one processor compiles everything in less."""


@dataclass(frozen=True, slots=True)
class EngineKernels:
    """What decides which kernels an engine launches, besides the GPU.

    `checkpoint`: its folder; `codec_slots`, `codec_rows`, `codec_frames`: as of `CodecWorkerOptions`, its streams and
    the largest batch. `fp8_cache`: as of `GpuOptions`. `fallback`: a precision of the codec, "float32" or "float16";
    then these are the kernels that the codec launches in it without its fast paths, alone. None: all kernels, with all
    fast paths.
    """

    checkpoint: str
    shape: TableShape
    codec_slots: int
    codec_rows: int
    codec_frames: int
    fp8_cache: bool = False
    fallback: str | None = None

    @classmethod
    def of(cls, config: EngineConfig) -> EngineKernels | None:
        """The kernels of an engine; None with options for which they are not known here, which are not the default."""
        options = config.options
        if options.codec is None or not options.voxgate_kernels or options.dtype is not None:
            return None
        codec = CodecWorkerOptions.from_json(options.codec)
        if codec.codec_mode != "stateful":
            return None
        return cls(
            config.checkpoint, config.shape, codec.slots, codec.max_rows, codec.max_frames, options.gpu.fp8_cache
        )

    @classmethod
    def from_json(cls, text: str) -> EngineKernels:
        fields: dict[str, Any] = json.loads(text)
        return cls(**fields | {"shape": TableShape(**fields["shape"])})

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def digest(self, capability: tuple[int, int]) -> str:
        """A hash of this, the GPU's `capability`, the checkpoint's configuration and all code that has a part in it."""
        package = Path(__file__).parents[3]
        code = [f"{folder}/**/*.{ending}" for folder in ("codecs", "pipeline") for ending in ("py", "cu", "h")]
        files = [*Path(self.checkpoint).glob("**/config.json"), *(path for each in code for path in package.glob(each))]
        versions = [str(installed_version(name)) for name in PROVEN_CUDA]
        parts = [self.to_json(), str(capability), os.environ.get("VOXGATE_GPU_LIMITS", ""), *versions]
        parts += [path.read_text("utf-8") for path in sorted(files)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def compile_ahead(config: EngineConfig) -> None:
    """Starts to compile what an engine with `config` will launch, and returns at once; logs one line at the end."""
    if (kernels := EngineKernels.of(config)) is not None:
        threading.Thread(target=_log_run, args=(kernels, config.owner_pid), name="compile-ahead", daemon=True).start()


def compile_fallback(config: EngineConfig, dtype: torch.dtype) -> str | None:
    """Compiles what the codec launches in `dtype` without its fast paths, and waits; in the engine's process.

    Returns what was done, for the log; None when there was nothing to do, because an earlier start has, or it failed.
    """
    if (ahead := EngineKernels.of(config)) is None:
        return None
    kernels = replace(ahead, fallback=str(dtype).removeprefix("torch."))
    line = None if _compiled_before(kernels) else _run(kernels, config.owner_pid)
    return None if line is None else f"codec in {kernels.fallback}: {line}"


def _compiled_before(kernels: EngineKernels) -> bool:
    from ...cuda.chip import chip_of_driver
    from ...cuda.kernel_compiler import is_complete

    return is_complete(kernels.digest(chip_of_driver().capability))


def _log_run(kernels: EngineKernels, owner_pid: int) -> None:
    if (line := _run(kernels, owner_pid)) is not None:
        log.info("%s", line)


def _run(kernels: EngineKernels, owner_pid: int) -> str | None:
    """The line that `main` prints in a process of its own; None, and a warning, when it fails."""
    command = [sys.executable, "-m", __name__, kernels.to_json(), str(owner_pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("GPU kernels are compiled at their first use: %s", error)
        return None
    said = (done.stderr if done.returncode else done.stdout).strip().splitlines()
    last = said[-1] if said else f"exit {done.returncode}"
    if done.returncode:
        log.warning("GPU kernels are compiled at their first use: %s", last)
        return None
    return last


def main(kernels: EngineKernels, owner_pid: int) -> None:
    """Compiles, unless an earlier start has, and prints one line. Raises VoxgateError, OSError."""
    exit_with_owner(owner_pid)
    # Imported here, because the gateway imports this module for `compile_ahead` alone.
    from ...cuda.chip import LIMITS_VARIABLE, chip_of_driver, lowered
    from ...cuda.kernel_compiler import compile_all, is_complete, mark_complete

    chip = chip_of_driver()
    if is_complete(digest := kernels.digest(chip.capability)):
        print("GPU kernels were compiled at an earlier start")
        return
    done = compile_all(compilations(kernels, chip.capability, lowered(chip, os.environ.get(LIMITS_VARIABLE))))
    print(done)
    if not done.failed:
        mark_complete(digest)


def compilations(kernels: EngineKernels, capability: tuple[int, int], chip: ChipLimits) -> list[Job]:
    """The compilation of each kernel, for a GPU of `capability` with the limits of `chip`.

    Raises CheckpointError, CodecFormatError.
    """
    import torch
    from voxgate.codecs.neural.config import DecoderConfig

    from ...checkpoint.checkpoint import load_checkpoint
    from ...codec.gpu_launches import codec_launches, codec_sources
    from ...cuda.kernel_compiler import noted_launches
    from ..cuda.first_frame import SIZES
    from ..cuda.launches import TalkerLaunches

    checkpoint = load_checkpoint(Path(kernels.checkpoint))
    codec = DecoderConfig.from_checkpoint(checkpoint.codec_folder)
    batches = kernels.codec_slots, kernels.codec_rows, kernels.codec_frames
    if kernels.fallback is not None:
        with noted_launches(capability) as launches:
            codec_launches(codec, *batches, chip, SIZES, getattr(torch, kernels.fallback))
        return [*launches.values()]
    talker = TalkerLaunches(checkpoint, kernels.shape, kernels.codec_slots, chip, fp8_cache=kernels.fp8_cache)
    with noted_launches(capability) as launches:
        # In the order in which the engine launches them.
        codec_launches(codec, *batches, chip, SIZES)
        talker.step()
        talker.inputs()
        talker.layers()
    sources = [*codec_sources(codec, chip), *talker.sources()]
    return [*(partial(source.compiled, capability) for source in sources), *launches.values()]


if __name__ == "__main__":
    try:
        main(EngineKernels.from_json(sys.argv[1]), int(sys.argv[2]))
    except (VoxgateError, CodecFormatError, OSError) as error:
        sys.exit(str(error))
