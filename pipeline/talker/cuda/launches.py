"""Everything that the talker launches on a GPU, over tensors without memory: to compile it ahead, without a GPU.

The code that launches the kernels is the engine's own; only the tensors that vLLM passes to it are described here.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
import triton
from torch import Tensor
from voxgate.codecs.neural.cuda.tiles import ChipLimits

from ...checkpoint.checkpoint import TalkerCheckpoint
from ...checkpoint.weights import PREFIX, tensor_shapes
from ...cuda.fast_paths import FastPath
from ...cuda.graph_sizes import backbone_graph_sizes, graph_sizes_for
from ...cuda.nvrtc import KernelSource
from ...ipc.records import HEADER
from ...ipc.slot_tables import SlotTables, TableShape
from ..reference.embedding import FrameHistory, InputEmbedding
from ..reference.row_tags import TAG_CHANNELS
from ..reference.slot_reader import TableViews
from ..reference.step import FrameStep
from . import first_frame
from .attention import CacheFormat, CudaAttention, PagedAttention, attention_source
from .backbone import GpuBackbone
from .backbone_kernels import BatchRows, LayerWeights
from .frame_step import GpuFrameStep, GpuInputEmbedding, TableSnapshot
from .mapped_tables import MappedTables
from .predictor.persistent import TILE_ROWS, VARIANTS, persistent_predictor_source, predictor_shape_for
from .predictor.predictor import GpuCodePredictor
from .sampling import CodeDraw, code_draw_source, code_draw_supports
from .step_kernels import PAGES, find_first_frames, prepare_rows
from .streamed_products import StreamedProducts, product_shapes, unsupported
from .tiles import ATTENTION_SPLITS

META = torch.device("meta")
PAGE = 16
"""Positions of a page of vLLM's cache."""
TABLE_GRANULE = 8
"""vLLM makes the rows of its page tables a multiple of 128 positions."""
SELF_TEST_ROWS, SELF_TEST_REQUESTS = 24, 3
"""The step of the self-test of the layers (`vllm/workers/gpu.py`), in which requests have several rows."""
PADDING_SLOT = -1
"""vLLM's mark of rows that write no key."""


class TalkerLaunches:
    """Launches every kernel of a talker's engine: of a checkpoint, for tables of `shape`, on a GPU with `chip`.

    As with the default options, in bfloat16. `codec_slots`: streams of the codec; `fp8_cache`: as of `GpuOptions`.
    """

    def __init__(
        self,
        checkpoint: TalkerCheckpoint,
        shape: TableShape,
        codec_slots: int,
        chip: ChipLimits,
        *,
        fp8_cache: bool = False,
    ) -> None:
        self._checkpoint, self._shape, self._codec_slots, self._chip = checkpoint, shape, codec_slots, chip
        self._cache = CacheFormat(PAGE, torch.float8_e4m3fn if fp8_cache else torch.bfloat16)
        self._pages = -(-shape.max_positions // (PAGE * TABLE_GRANULE)) * TABLE_GRANULE

    def sources(self) -> list[KernelSource]:
        """The CUDA C++ kernels."""
        sources = [code_draw_source(*self._draw_size)] if self._draws_in_cuda else []
        size, groups, vocab = self._checkpoint.predictor, self._checkpoint.groups, self._checkpoint.codebook
        for rows, path in VARIANTS.items():
            shape = predictor_shape_for(size, groups, vocab, torch.bfloat16, rows)
            if shape is not None and path.missing(self._chip) is None and rows - TILE_ROWS < self._shape.rows:
                sources.append(persistent_predictor_source(shape))
        if self._attends_in_cuda:
            sources += [attention_source(self._checkpoint.talker, self._cache, split) for split in ATTENTION_SPLITS]
        if self._streams_products:
            by_rows = product_shapes(self._checkpoint.talker)
            sources += [shape.source() for shapes in by_rows.values() for shape in shapes]
        return sources

    @property
    def _streams_products(self) -> bool:
        missing = FastPath.PRODUCTS.missing(self._chip)
        return missing is None and unsupported(self._checkpoint.talker, torch.bfloat16) is None

    @property
    def _angles(self) -> Tensor:
        return _half(self._shape.max_positions, self._checkpoint.talker.head_dim)

    @property
    def _attends_in_cuda(self) -> bool:
        missing = FastPath.ATTENTION.missing(self._chip)
        return missing is None and CudaAttention.unsupported(self._checkpoint.talker, self._angles, self._cache) is None

    @property
    def _draw_size(self) -> tuple[int, int]:
        return self._checkpoint.codebook, self._checkpoint.predictor.hidden

    @property
    def _draws_in_cuda(self) -> bool:
        return FastPath.CODE_DRAW.missing(self._chip) is None and code_draw_supports(*self._draw_size, torch.bfloat16)

    def step(self) -> None:
        """The end of a step and the code predictor."""
        with META, torch.inference_mode():
            snapshot = TableSnapshot.of(self._shape.rows, META)
            reference, predictor = self._frame_step()
            step = GpuFrameStep(reference, predictor, self._checkpoint, snapshot, self._shape.rows)
            for count in graph_sizes_for(self._shape.rows):
                step.make(_half(count, self._checkpoint.talker.hidden + TAG_CHANNELS))

    def inputs(self) -> None:
        """Input embedding, preparation of inputs, and the search for first frames."""
        shape, tables = self._shape, SlotTables.create(self._shape)[0]
        views = TableViews.of(tables)
        with META, torch.inference_mode():
            reader = MappedTables(views)
            history = FrameHistory.zeros(shape, self._checkpoint.codebook)
            embedding = InputEmbedding(self._weights(), self._checkpoint, reader, history)
            embed = GpuInputEmbedding(embedding, views, TableSnapshot.of(shape.rows, META))
            for count in backbone_graph_sizes(shape.rows, voxgate_kernels=True):
                embed(reader.successor_ids(_ints(count)), _longs(count))
            rows, groups, columns = shape.rows, shape.groups, first_frame.SIZES[-1]
            find_first_frames[(1,)](
                _ints(rows, HEADER + groups), _longs(3, columns), _longs(2 + groups, columns), rows, columns,
                self._codec_slots, GROUPS=groups, HEADER=HEADER, SPAN=triton.next_power_of_2(rows),
            )  # fmt: skip  # one argument list
            table = _ints(rows, self._pages)
            prepare_rows[(rows,)](
                _longs(rows), _ints(rows), _longs(rows, 1), table, _ints(1, rows), _ints(rows), _longs(rows),
                _ints(rows), _ints(rows + 1), table, _longs(1, rows), rows, rows, self._pages, PAGE, PADDING_SLOT,
                SPAN=PAGES, num_warps=1,
            )  # fmt: skip  # one argument list

    def layers(self) -> None:
        """The backbone, of which all layers are launched alike."""
        size, rows = self._checkpoint.talker, self._shape.rows
        queries, keys = size.heads * size.head_dim, size.kv_heads * size.head_dim
        matrices = (
            _half(queries + 2 * keys, size.hidden),
            _half(size.hidden, queries),
            _half(2 * size.intermediate, size.hidden),
            _half(size.hidden, size.intermediate),
        )
        layer = LayerWeights(*matrices, _half(size.head_dim), _half(size.head_dim))
        sizes = backbone_graph_sizes(rows, voxgate_kernels=True)
        with META, torch.inference_mode():
            attention: PagedAttention | None = None
            if self._attends_in_cuda:
                attention = CudaAttention(size, self._angles, self._cache, lambda _split: lambda *_: None)
            streamed = StreamedProducts(size, META, lambda _: lambda *_: None) if self._streams_products else None
            own = GpuBackbone(
                [layer], _half(size.hidden), self._angles, size, max(sizes), attention=attention, chip=self._chip,
                streamed=streamed,
            )  # fmt: skip  # one argument list
            cache = _half(2, size.kv_heads, PAGE, 2 * size.head_dim).to(self._cache.dtype)
            steps = [(count, min(count, rows)) for count in sizes]
            for count, requests in [*steps, (SELF_TEST_ROWS, min(SELF_TEST_REQUESTS, rows))]:
                batch = BatchRows(
                    _ints(count), _longs(count), _longs(count), _ints(requests, self._pages), _ints(requests + 1)
                )
                own(_half(count, size.hidden), batch, [cache])

    def _frame_step(self) -> tuple[FrameStep, GpuCodePredictor]:
        checkpoint, shape, weights = self._checkpoint, self._shape, self._weights()
        draw = CodeDraw(*self._draw_size, launch=lambda *_: None) if self._draws_in_cuda else None
        predictor = GpuCodePredictor(
            weights,
            weights["talker.model.codec_embedding.weight"],
            replace(checkpoint.predictor, layers=1),
            checkpoint.groups,
            shape.rows,
            chip=self._chip,
            draw=draw,
        )
        history = FrameHistory.zeros(shape, checkpoint.codebook)
        reader: Any = SimpleNamespace()
        head = weights["talker.codec_head.weight"]
        return FrameStep(head, predictor, checkpoint, shape, reader, history, lambda _: None), predictor

    def _weights(self) -> dict[str, Tensor]:
        return {PREFIX + name: _half(*shape) for name, shape in tensor_shapes(self._checkpoint).items()}


def _half(*shape: int) -> Tensor:
    return torch.empty(*shape, dtype=torch.bfloat16, device=META)


def _longs(*shape: int) -> Tensor:
    return torch.empty(*shape, dtype=torch.int64, device=META)


def _ints(*shape: int) -> Tensor:
    return torch.empty(*shape, dtype=torch.int32, device=META)
