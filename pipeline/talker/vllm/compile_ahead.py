"""Compiles the GPU kernels that an engine will launch, in other processes, while vLLM starts.

The engine would compile them at their first launch, one after the other, for minutes. It finds them in Triton's cache
instead, and still compiles what is missing there, so nothing depends on this.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
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
    from ...cuda.kernel_compiler import Job

log = logging.getLogger(__name__)

DEADLINE_S = 600.0
"""After which compiling ends; one processor compiles everything in less."""


@dataclass(frozen=True, slots=True)
class EngineKernels:
    """What decides which kernels an engine launches, besides the GPU.

    `checkpoint`: its folder; `codec_slots`, `codec_rows`, `codec_frames`: as of `CodecWorkerOptions`, its streams and
    the largest batch.
    """

    checkpoint: str
    shape: TableShape
    codec_slots: int
    codec_rows: int
    codec_frames: int

    @classmethod
    def of(cls, config: EngineConfig) -> EngineKernels | None:
        """The kernels of an engine; None with options for which they are not known here, which are not the default."""
        options = config.options
        if options.codec is None or not options.voxgate_kernels or options.dtype is not None:
            return None
        codec = CodecWorkerOptions.from_json(options.codec)
        if codec.codec_mode != "stateful":
            return None
        return cls(config.checkpoint, config.shape, codec.slots, codec.max_rows, codec.batch_frames)

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
        threading.Thread(target=_run, args=(kernels, config.owner_pid), name="compile-ahead", daemon=True).start()


def _run(kernels: EngineKernels, owner_pid: int) -> None:
    command = [sys.executable, "-m", __name__, kernels.to_json(), str(owner_pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("GPU kernels are compiled at their first use: %s", error)
        return
    said = (done.stderr if done.returncode else done.stdout).strip().splitlines()
    if done.returncode:
        log.warning("GPU kernels are compiled at their first use: %s", said[-1] if said else f"exit {done.returncode}")
    for line in said if not done.returncode else ():
        log.info("%s", line)


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
    from voxgate.codecs.neural.config import DecoderConfig

    from ...checkpoint.checkpoint import load_checkpoint
    from ...codec.gpu_launches import codec_launches, codec_sources
    from ...cuda.kernel_compiler import noted_launches
    from ..cuda.first_frame import SIZES
    from ..cuda.launches import TalkerLaunches

    checkpoint = load_checkpoint(Path(kernels.checkpoint))
    codec = DecoderConfig.from_checkpoint(checkpoint.codec_folder)
    talker = TalkerLaunches(checkpoint, kernels.shape, kernels.codec_slots, chip)
    with noted_launches(capability) as launches:
        # In the order in which the engine launches them.
        codec_launches(codec, kernels.codec_slots, kernels.codec_rows, kernels.codec_frames, chip, SIZES)
        talker.step()
        talker.inputs()
        talker.layers()
    sources = [*codec_sources(chip), *talker.sources()]
    return [*(partial(source.compiled, capability) for source in sources), *launches.values()]


if __name__ == "__main__":
    try:
        main(EngineKernels.from_json(sys.argv[1]), int(sys.argv[2]))
    except (VoxgateError, CodecFormatError, OSError) as error:
        sys.exit(str(error))
