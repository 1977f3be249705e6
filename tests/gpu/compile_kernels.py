"""Compiles the Triton kernels at every size used, for a GPU that need not be present, and prints what each needs.

`python -m tests.gpu.compile_kernels 8.9 101376` prints a JSON object for each kernel: its name and its shared memory in
bytes; with names of parts behind, only theirs. The code that launches the kernels runs as on a device, over tensors
without memory (PyTorch's meta device), and each launch compiles instead. It is a process of its own, because Triton's
interpreter, which the other tests use, replaces the compiler in a whole process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
import triton
from torch import Tensor
from triton.runtime.jit import JITFunction
from voxgate.benchmarks import random_checkpoint as published
from voxgate.codecs.neural.config import DecoderConfig
from voxgate.codecs.neural.cuda.decoder import GpuDecoder
from voxgate.codecs.neural.cuda.tiles import ChipLimits
from voxgate.codecs.neural.decoder import CodecDecoder
from voxgate.codecs.neural.weights import random_tensors
from voxgate.pipeline.checkpoint.checkpoint import TransformerSize
from voxgate.pipeline.codec.gpu_worker import captured_shapes
from voxgate.pipeline.cuda.graph_sizes import backbone_graph_sizes, graph_sizes_for
from voxgate.pipeline.cuda.kernel_compiler import AbsentDevice
from voxgate.pipeline.ipc.records import HEADER
from voxgate.pipeline.ipc.slot_tables import CONTROL_COLUMNS, OPTION_COLUMNS
from voxgate.pipeline.talker.cuda.backbone import GpuBackbone
from voxgate.pipeline.talker.cuda.backbone_kernels import BatchRows, LayerWeights
from voxgate.pipeline.talker.cuda.frame_step import GpuFrameStep, GpuInputEmbedding, TableSnapshot
from voxgate.pipeline.talker.cuda.mapped_tables import MappedTables
from voxgate.pipeline.talker.cuda.predictor.predictor import GpuCodePredictor
from voxgate.pipeline.talker.cuda.sampling import TritonSampler
from voxgate.pipeline.talker.cuda.step_kernels import PAGES, find_first_frames, prepare_rows
from voxgate.pipeline.talker.reference.row_tags import TAG_CHANNELS
from voxgate.pipeline.talker.reference.sampling import Candidates

META = torch.device("meta")
GROUPS = published.GROUPS
SLOTS, PAGE, POSITIONS = 1824, 16, 1024
"""Rows of the tables of the largest engine measured; positions of a page and of a generation."""
CODEC_ROWS, CODEC_FRAMES = 128, 512
"""Of the codec's largest batches."""
FEW_ROWS = (1, 16, 128, 256)
"""In float32, the fallback, which has the same tiles: one size for each of them."""


def empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(*shape, dtype=dtype, device=META)


def longs(*shape: int) -> Tensor:
    return empty(*shape, dtype=torch.int64)


def ints(*shape: int) -> Tensor:
    return empty(*shape, dtype=torch.int32)


def floats(*shape: int) -> Tensor:
    return empty(*shape, dtype=torch.float32)


def predictor(chip: ChipLimits) -> None:
    width, inner, layers, vocab = published.PREDICTOR.values()
    size = TransformerSize(width, inner, layers, published.HEADS, published.KV_HEADS, published.HEAD_DIM, 1e-6, 1e6)
    for dtype, rows in ((torch.bfloat16, SLOTS), (torch.float32, 8)):
        weights = {name: empty(*shape, dtype=dtype) for name, shape in published.talker_shapes("0.6B")}
        own = GpuCodePredictor(weights, weights["talker.model.codec_embedding.weight"], size, GROUPS, rows, chip=chip)
        for count in graph_sizes_for(rows):
            inverse, top_k, top_p = floats(count, 1), longs(count, 1), floats(count, 1)
            candidates = Candidates(inverse, empty(count, dtype=torch.bool), top_k, top_p, vocab)
            own(empty(count, width, dtype=dtype), longs(count), candidates, floats(count, GROUPS - 1))


def layers(chip: ChipLimits) -> None:
    queries, keys = published.HEADS * published.HEAD_DIM, published.KV_HEADS * published.HEAD_DIM
    for hidden, inner in published.WIDTHS.values():
        size = TransformerSize(
            hidden, inner, published.LAYERS, published.HEADS, published.KV_HEADS, published.HEAD_DIM, 1e-6, 1e6
        )
        matrices = (
            empty(queries + 2 * keys, hidden),
            empty(hidden, queries),
            empty(2 * inner, hidden),
            empty(hidden, inner),
        )
        layer = LayerWeights(*matrices, empty(published.HEAD_DIM), empty(published.HEAD_DIM))
        own = GpuBackbone([layer], empty(hidden), floats(POSITIONS, published.HEAD_DIM), size, SLOTS, chip=chip)
        cache = empty(64, published.KV_HEADS, PAGE, 2 * published.HEAD_DIM)
        for count in backbone_graph_sizes(SLOTS, voxgate_kernels=True):
            pages = ints(count, POSITIONS // PAGE)
            rows = BatchRows(ints(count), longs(count), longs(count), pages, ints(count + 1))
            own(empty(count, hidden), rows, [cache])


def step(chip: ChipLimits) -> None:  # noqa: ARG001  # has one tile for every chip
    for hidden, _ in published.WIDTHS.values():
        snapshot = TableSnapshot.of(SLOTS, META)
        tables: Any = SimpleNamespace(
            control=longs(SLOTS, CONTROL_COLUMNS), options=floats(SLOTS, OPTION_COLUMNS), text=ints(SLOTS, 256),
            prefix=ints(SLOTS, 32, 1 + GROUPS), speaker=floats(SLOTS, hidden), slots=SLOTS,
        )  # fmt: skip  # one argument list
        history = SimpleNamespace(codes=ints(SLOTS + 1, 400, GROUPS), sampled=ints(SLOTS + 1, published.CODEBOOK + 1))
        entries = published.CODEC_VOCAB + (GROUPS - 1) * published.CODEBOOK + 1
        embedding: Any = SimpleNamespace(
            history=history, group_starts=longs(GROUPS), text=empty(published.TEXT_VOCAB, hidden),
           codec=empty(entries, hidden),            no_entry=entries - 1, ids=SimpleNamespace(pad=1, eos=2),
        )  # fmt: skip  # one argument list
        embed = GpuInputEmbedding(embedding, tables, snapshot)
        reference: Any = SimpleNamespace(history=history, head=empty(published.CODEC_VOCAB, hidden))
        shape: Any = SimpleNamespace(groups=GROUPS)
        end = GpuFrameStep(reference, lambda states, *_: longs(len(states), GROUPS - 1), shape, snapshot, SLOTS)
        reader = MappedTables(tables)
        for count in graph_sizes_for(SLOTS):
            embed(ints(count), longs(count))
            end.make(empty(count, hidden + TAG_CHANNELS))
            reader.successor_ids(ints(count))
            reader.control(longs(count))
            reader.options(longs(count))
            reader.text(longs(count), longs(count))
            reader.prefix(longs(count), longs(count))
            reader.speaker(longs(count), empty(count, dtype=torch.bool))
            sampling(count, published.CODEC_VOCAB)
            sampling(count, published.CODEBOOK)
    for count in (160, SLOTS):
        find_first_frames[(1,)](
            ints(count, HEADER + GROUPS), longs(3, 4), longs(2 + GROUPS, 4), count, 4, SLOTS,
            GROUPS=GROUPS, HEADER=HEADER, SPAN=triton.next_power_of_2(count),
        )  # fmt: skip  # one argument list
        table = ints(count, POSITIONS // PAGE)
        prepare_rows[(count,)](
            longs(count), ints(count), longs(count, 1), table, ints(1, count), ints(count), longs(count), ints(count),
            ints(count + 1), table, longs(1, count), count, count, POSITIONS // PAGE, PAGE, -1, SPAN=PAGES, num_warps=1,
        )  # fmt: skip  # one argument list


def sampling(count: int, vocab: int) -> None:
    sampler = TritonSampler()
    noise = sampler.uniform(longs(count), longs(count), GROUPS)
    candidates = Candidates(floats(count, 1), empty(count, dtype=torch.bool), longs(count, 1), floats(count, 1), vocab)
    sampler.draw(floats(count, vocab), candidates, noise[:, :1])


def codec(chip: ChipLimits) -> None:
    config = DecoderConfig.from_document(
        {"decoder_config": published.CODEC, "output_sample_rate": 24_000, "decode_upsample_rate": 1920}
    )
    loaded = CodecDecoder(config, random_tensors(config))
    for dtype, all_rows in ((torch.float16, None), (torch.float32, FEW_ROWS)):
        decoder = GpuDecoder(loaded, 8, dtype, META, chip=chip)
        for rows, frames in captured_shapes(CODEC_ROWS, CODEC_FRAMES):
            if all_rows is None or rows in all_rows:
                decoder.decode(longs(rows, frames, GROUPS), longs(rows), longs(rows))


PARTS: Mapping[str, Callable[[ChipLimits], None]] = {part.__name__: part for part in (predictor, layers, step, codec)}


def compiled(chip: ChipLimits, parts: Sequence[str]) -> dict[Any, tuple[str, int]]:
    """Name and shared memory of each kernel of `parts`, compiled for `chip`."""
    kernels: dict[Any, tuple[str, int]] = {}
    run: Callable[..., Any] = JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:  # noqa: ARG001  # as `run`
        kernel = run(self, *args, grid=grid, warmup=True, **options)
        kernels[kernel] = self.fn.__name__, kernel.metadata.shared
        return kernel

    triton.runtime.driver.set_active(AbsentDevice(chip.capability))
    JITFunction.run = compile_only
    for part in parts:
        PARTS[part](chip)
    return kernels


def main(capability: str, shared_bytes: str, *parts: str) -> None:
    major, minor = map(int, capability.split("."))
    chip = ChipLimits((major, minor), int(shared_bytes))
    for name, shared in compiled(chip, parts or tuple(PARTS)).values():
        print(json.dumps({"kernel": name, "shared_bytes": shared}))


if __name__ == "__main__":
    main(*sys.argv[1:])
