"""Compares the kernels that are compiled ahead with those that the engine's own objects launch, without a GPU.

`python -m tests.gpu.launch_keys` prints a JSON object: `ahead` and `launched`, the numbers of kernels; `missing`: those
launched that were not compiled ahead; `fallback`: the number of kernels that a codec in float32 launches, `different`:
those that it launches or that are compiled for this fallback, but not both; `hashes`: under which hash Triton's cache
keeps one kernel when it is compiled ahead and when it is launched. A process of its own, as `compile_kernels.py`, whose
launches do nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from triton.runtime.jit import JITFunction
from voxgate.codecs.neural.config import DecoderConfig
from voxgate.codecs.neural.cuda.decoder import GpuDecoder
from voxgate.codecs.neural.cuda.tiles import ChipLimits
from voxgate.codecs.neural.decoder import CodecDecoder
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint, load_checkpoint
from voxgate.pipeline.codec.gpu_launches import codec_launches
from voxgate.pipeline.codec.gpu_worker import captured_shapes
from voxgate.pipeline.cuda.graph_sizes import backbone_graph_sizes, graph_sizes_for
from voxgate.pipeline.cuda.kernel_compiler import noted_launches
from voxgate.pipeline.ipc.slot_tables import SlotTables, TableShape
from voxgate.pipeline.talker.cuda.backbone import GpuBackbone
from voxgate.pipeline.talker.cuda.backbone_kernels import BatchRows, LayerWeights, swiglu
from voxgate.pipeline.talker.cuda.first_frame import SIZES
from voxgate.pipeline.talker.cuda.frame_step import GpuFrameStep, GpuInputEmbedding, TableSnapshot
from voxgate.pipeline.talker.cuda.launches import TalkerLaunches
from voxgate.pipeline.talker.cuda.mapped_tables import MappedTables
from voxgate.pipeline.talker.cuda.predictor.predictor import GpuCodePredictor
from voxgate.pipeline.talker.cuda.tiles import SWIGLU_SPAN
from voxgate.pipeline.talker.reference.embedding import FrameHistory, InputEmbedding
from voxgate.pipeline.talker.reference.row_tags import append_row_tags
from voxgate.pipeline.talker.reference.sampling import Candidates
from voxgate.pipeline.talker.reference.slot_reader import TableViews
from voxgate.pipeline.talker.reference.step import FrameStep
from voxgate.pipeline.talker.vllm.compile_ahead import EngineKernels, compilations

CHIP = ChipLimits((8, 6), 101_376)
"""Without CUDA C++, so that every launch is one of Triton's."""
HOPPER = ChipLimits((9, 0), 232_448)
"""Whose codec has convolutions that load by TMA."""
SLOTS, ROWS, FRAMES, CODEC_ROWS, CODEC_FRAMES = 40, 44, 50, 8, 16


def ahead(checkpoint: TalkerCheckpoint, shape: TableShape) -> None:
    talker = TalkerLaunches(checkpoint, shape, 2 * SLOTS, CHIP)
    codec = DecoderConfig.from_checkpoint(checkpoint.codec_folder)
    codec_launches(codec, 2 * SLOTS, CODEC_ROWS, CODEC_FRAMES, CHIP, SIZES)
    talker.step()
    talker.inputs()
    talker.layers()


def launched(checkpoint: TalkerCheckpoint, shape: TableShape) -> None:
    """As `VoxgateTalker`, vLLM's runner and the codec's worker do it, with real weights and memory."""
    weights = {
        name: tensor.bfloat16()
        for path in checkpoint.folder.glob("*.safetensors")
        for name, tensor in load_file(path).items()
        if name.startswith("talker.")
    }
    talker_steps(checkpoint, shape, weights)
    backbone_steps(checkpoint, shape, weights)
    decoded(checkpoint, torch.float16)


def decoded(checkpoint: TalkerCheckpoint, dtype: torch.dtype, chip: ChipLimits = CHIP) -> None:
    loaded = CodecDecoder.from_checkpoint(checkpoint.codec_folder)
    decoder = GpuDecoder(loaded, 2 * SLOTS, dtype, torch.device("cpu"), chip=chip)
    decoder.fast_sine = True
    for rows, frames in [*captured_shapes(CODEC_ROWS, CODEC_FRAMES), *((rows, 1) for rows in SIZES)]:
        streams = torch.tensor([[decoder.slots] * rows, [1] * rows])
        decoder.decode(torch.zeros(rows, frames, decoder.codebooks, dtype=torch.int64), streams[0], streams[1])


def talker_steps(checkpoint: TalkerCheckpoint, shape: TableShape, weights: dict[str, Tensor]) -> None:
    tables, _ = SlotTables.create(shape)
    views = TableViews.of(tables)
    reader, snapshot = MappedTables(views), TableSnapshot.of(shape.rows, torch.device("cpu"))
    history = FrameHistory.zeros(shape, checkpoint.codebook)
    embed = GpuInputEmbedding(InputEmbedding(weights, checkpoint, reader, history), views, snapshot)
    first = weights["talker.model.codec_embedding.weight"]
    predictor = GpuCodePredictor(weights, first, checkpoint.predictor, checkpoint.groups, shape.rows, chip=CHIP)
    head = weights["talker.codec_head.weight"]
    reference = FrameStep(head, predictor, checkpoint, shape, reader, history, lambda _: None)

    def complete(hidden: Tensor, first: Tensor, candidates: Candidates, noise: Tensor) -> Tensor:
        # The kernel that draws the first codes has not run.
        return predictor(hidden, first.zero_(), candidates, noise)

    step = GpuFrameStep(reference, complete, checkpoint, snapshot, shape.rows)
    slots = torch.full((1,), shape.rows)
    padding_row = append_row_tags(torch.zeros(1, checkpoint.talker.hidden).bfloat16(), slots, torch.zeros_like(slots))
    for count in graph_sizes_for(shape.rows):
        step.make(padding_row.repeat(count, 1))
    buffer, positions = torch.zeros(2048, dtype=torch.int32), torch.zeros(2048, dtype=torch.int64)
    for count in backbone_graph_sizes(shape.rows, voxgate_kernels=True):
        embed(reader.successor_ids(buffer[:count]), positions[:count])


def backbone_steps(checkpoint: TalkerCheckpoint, shape: TableShape, weights: dict[str, Tensor]) -> None:
    size, layers = checkpoint.talker, []
    for number in range(2):
        own = {
            name.partition(f"layers.{number}.")[2]: tensor
            for name, tensor in weights.items()
            if name.startswith(f"talker.model.layers.{number}.")
        }
        qkv = torch.cat([own[f"self_attn.{part}_proj.weight"] for part in "qkv"])
        gate_up = torch.cat([own[f"mlp.{part}_proj.weight"] for part in ("gate", "up")])
        norms = own["self_attn.q_norm.weight"], own["self_attn.k_norm.weight"]
        layers.append(LayerWeights(qkv, own["self_attn.o_proj.weight"], gate_up, own["mlp.down_proj.weight"], *norms))
    sizes, pages = backbone_graph_sizes(shape.rows, voxgate_kernels=True), -(-shape.max_positions // 128) * 8
    angles = torch.zeros(shape.max_positions, size.head_dim).bfloat16()
    backbone = GpuBackbone(layers, weights["talker.model.norm.weight"], angles, size, max(sizes), chip=CHIP)
    caches = [torch.zeros(8, size.kv_heads, 16, 2 * size.head_dim).bfloat16() for _ in layers]
    ids, starts = torch.zeros(4096, dtype=torch.int32), torch.zeros(shape.rows + 1, dtype=torch.int32)
    longs, table = torch.zeros(2, 4096, dtype=torch.int64), torch.zeros(shape.rows, pages, dtype=torch.int32)
    for count in sizes:
        requests = min(count, shape.rows)
        batch = BatchRows(ids[:count], longs[0, :count], longs[1, :count], table[:requests], starts[: requests + 1])
        backbone(torch.zeros(count, size.hidden).bfloat16(), batch, caches)


def hashes(kernel: Any, noted: dict[str, Callable[[], Any]]) -> list[str]:
    """The hash of `swiglu` compiled ahead, and launched: `warmup` is a launch up to the point where it needs a GPU."""
    (compile_ahead,) = (job for key, job in noted.items() if key.startswith(f"{kernel.__module__}.{kernel.__name__} "))
    numbers = torch.zeros(64).bfloat16()
    options = {"SPAN": SWIGLU_SPAN, "PDL": False, "launch_pdl": False}
    launch = JITFunction.run(kernel, numbers, numbers, 1536, grid=(1, 1), warmup=True, **options)
    return [compile_ahead().hash, launch.hash]


def specialisations(jobs: Iterable[Any]) -> set[str]:
    """What each job compiles, with the kernel's name."""
    return {job.args[0] for job in jobs}


def main() -> None:
    checkpoint = load_checkpoint(Path(str(files("voxgate.voices"))) / "demo")
    shape = TableShape(SLOTS, 32, 16, FRAMES, checkpoint.groups, checkpoint.talker.hidden, ROWS - SLOTS)
    with noted_launches(CHIP.capability) as first:
        ahead(checkpoint, shape)
    with noted_launches(CHIP.capability) as second:
        launched(checkpoint, shape)
    kernels = EngineKernels(str(checkpoint.folder), shape, 2 * SLOTS, CODEC_ROWS, CODEC_FRAMES, fallback="float32")
    compiled = specialisations(compilations(kernels, CHIP.capability, CHIP))
    with noted_launches(CHIP.capability) as third:
        decoded(checkpoint, torch.float32)
    needed = specialisations(third.values())
    result: dict[str, Any] = {"fallback": len(needed), "different": sorted(compiled ^ needed)}
    result |= {"ahead": len(first), "launched": len(second), "missing": sorted(second.keys() - first.keys())}
    # Their operands are tensor descriptors.
    with noted_launches(HOPPER.capability) as fourth:
        codec = DecoderConfig.from_checkpoint(checkpoint.codec_folder)
        codec_launches(codec, 2 * SLOTS, CODEC_ROWS, CODEC_FRAMES, HOPPER, SIZES)
    with noted_launches(HOPPER.capability) as fifth:
        decoded(checkpoint, torch.float16, HOPPER)
    result |= {"tma": sum("convolve_by_tma" in key for key in fifth), "other": sorted(fourth.keys() ^ fifth.keys())}
    print(json.dumps(result | {"hashes": hashes(swiglu, first)}))


if __name__ == "__main__":
    main()
