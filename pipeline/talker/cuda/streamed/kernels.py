"""The two CUDA C++ kernels of a streamed layer: `StreamedAttention`, and `OutMlpQkv` from there to the next attention.

Free of Triton: the gateway's process imports `packed_bytes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor

from ....checkpoint.checkpoint import TransformerSize
from ....cuda.nvrtc import CudaKernel, KernelSource, Launch, pack_arguments

OUT_MLP_QKV_SOURCE = Path(__file__).parents[1] / "csrc/out_mlp_qkv.cu"
ATTENTION_SOURCE = Path(__file__).parents[1] / "csrc/streamed_attention.cu"
BLOCKS = 128
"""Blocks of `out_mlp_qkv`, one on each multiprocessor. They wait for one another, so all must run at once."""
HEAD_DIM, SHARING = 128, 2
"""Width of a head, and query heads of a key-value head, that `streamed_attention` supports."""
ATTENTION_WARPS, ATTENTION_TILES = 4, 1
"""Warps of a block of `streamed_attention`, and tiles of 16 positions that each of them loads ahead."""
SPINS = 1 << 22
"""Polls of a block for the others, some seconds, after which the kernel traps instead of hanging."""


@dataclass(frozen=True, slots=True)
class LayerTiling:
    """A layer's sizes for `out_mlp_qkv` and how it divides them; its macros, in lower case.

    `attended`: width of the attention's output; `row_blocks`: blocks of 8 rows; `ranks`: blocks of a cluster, which
    divide the inner width of a product; `span`: inner width of a unit of 16 lines, of which `ring` are in shared
    memory; `batch`: units whose sums are reduced at once; `down_passes`: passes over the inner width of the down
    projection, to limit `registers`; `sums`: parts of a row's sum of squares.
    """

    hidden: int
    attended: int
    inner: int
    qkv: int
    row_blocks: int = 2
    ranks: int = 2
    span: int = 512
    ring: int = 9
    batch: int = 2
    down_passes: int = 6
    warps: int = 8
    blocks: int = BLOCKS
    sums: int = BLOCKS
    registers: int = 136

    @property
    def max_rows(self) -> int:
        return 8 * self.row_blocks

    def macros(self) -> dict[str, int]:
        sizes = {name.upper(): value for name, value in asdict(self).items()}
        return sizes | {"SHARED": self.shared_bytes(), "SPINS": SPINS, "LOAD_WARPS": 1}

    def shared_bytes(self) -> int:
        tile = self.row_blocks * 512
        inbox = self.ranks * (max(2 * self.inner, self.qkv) // 16 // self.blocks) * tile
        ring, parts = self.ring * 32 * self.span, self.warps * self.batch * tile
        return _aligned_128(ring + parts + inbox + self.row_blocks * 32 + 16 * (2 * self.ring + 1))

    def fits(self) -> bool:
        """Whether the kernel can divide the products of these sizes."""
        wide, narrow = (2 * self.inner, self.qkv), self.hidden
        return (
            self.span == self.warps * 32 * max(self.span // self.warps // 32, 1)
            and all(width % (16 * self.blocks) == 0 for width in wide)
            and narrow == 16 * self.blocks <= 16 * self.sums
            and all(depth % (self.ranks * self.span) == 0 for depth in (self.hidden, self.attended, self.inner))
            and self.inner // (self.ranks * self.span) % self.down_passes == 0
            and self.ranks % self.batch == 0
            and (self.down_passes == 1 or self.ranks == self.batch)
        )


def layer_tilings(size: TransformerSize) -> tuple[LayerTiling, ...]:
    """For up to 8, 16 and 32 rows. They share one layout of the weights and add in the same order."""
    queries, keys = size.heads * size.head_dim, size.kv_heads * size.head_dim
    widths = size.hidden, queries, size.intermediate, queries + 2 * keys
    return (
        LayerTiling(*widths, row_blocks=1),
        LayerTiling(*widths, row_blocks=2),
        LayerTiling(*widths, row_blocks=4, ring=7, registers=168),
    )


def fits(size: TransformerSize) -> bool:
    """Whether both kernels support a model of this size."""
    heads = size.head_dim == HEAD_DIM and size.heads == SHARING * size.kv_heads
    return heads and all(tiling.fits() for tiling in layer_tilings(size))


def packed_bytes(size: TransformerSize) -> int:
    """Bytes of all layers' weights as `packed` lays them out, in bfloat16; 0 where the kernels do not fit."""
    if not fits(size):
        return 0
    tiling = layer_tilings(size)[0]
    return 2 * size.layers * tiling.hidden * (tiling.attended + 3 * tiling.inner + tiling.qkv)


def packed(matrix: Tensor, tiling: LayerTiling, *, passes: int = 1, gate_up: bool = False) -> Tensor:
    """`matrix` [width, depth] in the order in which blocks, units, warps and lanes read it.

    [cluster, rank, pass, tile, unit of depth, warp, group of 32, half of a tile, line, pair, eight numbers]. `gate_up`:
    the matrix is gate and up, and each tile of 16 lines takes 8 of either.
    """
    width, depth = matrix.shape
    lines = matrix.view(2, -1, 8, depth).transpose(0, 1) if gate_up else matrix
    groups = tiling.span // tiling.warps // 32
    split = lines.reshape(
        tiling.blocks // tiling.ranks, width * tiling.ranks // tiling.blocks // 16, 2, 8,
        tiling.ranks, passes, depth // tiling.ranks // passes // tiling.span, tiling.warps, groups, 4, 8,
    )  # fmt: skip  # lines, and what is in one
    return split.permute(0, 4, 5, 1, 6, 7, 8, 2, 3, 9, 10).reshape(width, depth).contiguous()


class OutMlpQkv:
    """From the attention of a layer to the queries, keys and values of the next, for up to `tiling.max_rows` rows."""

    def __init__(self, tiling: LayerTiling, launch: Launch | None = None) -> None:
        """`launch`: used instead of compiling the kernel for this GPU.

        Raises EngineError where the GPU cannot run it.
        """
        self.tiling = tiling
        self._threads = 32 * (tiling.warps + 1)
        if launch is None:
            kernel = CudaKernel(KernelSource(OUT_MLP_QKV_SOURCE, tiling.macros()), tiling.shared_bytes(), pdl=True)
            kernel.require_resident(tiling.blocks // tiling.ranks, tiling.blocks, self._threads)
            kernel.prefer_shared_memory()
            launch = kernel.launch
        self._launch = launch

    def __call__(
        self, out: Tensor | None, gate_up: Tensor | None, down: Tensor | None, qkv: Tensor | None, attended: Tensor,
        x: Tensor, inner: Tensor, queries: Tensor, residual: Tensor, sum_sq: Tensor, counters: Tensor, eps: float,
    ) -> None:  # fmt: skip  # one argument list
        """Matrices as of `packed`; before the first layer only `qkv` is given, behind the last `qkv` is None.

        `attended`, `x`, `inner`, `queries` (queries, keys and values): bfloat16 [n, width]; `residual`: float32 [n,
        hidden], of which `x` is the rounded value; `sum_sq`: float32 [n, sums]; `counters`: int32 [3, ranks], zero.
        """
        self._launch(
            self.tiling.blocks, self._threads,
            pack_arguments(
                out, gate_up, down, qkv, attended, x, inner, queries, residual, sum_sq, counters, len(x), eps
            ),
        )  # fmt: skip  # one argument list


class StreamedAttention:
    """Attention with norm, rotary embedding and cache, for `SHARING` query heads of each key-value head."""

    def __init__(
        self,
        size: TransformerSize,
        warps: int = ATTENTION_WARPS,
        tiles: int = ATTENTION_TILES,
        launch: Launch | None = None,
        blocks: int = 0,
    ) -> None:
        """`launch`: used, with `blocks` blocks, instead of compiling the kernel for this GPU.

        Raises EngineError where the GPU cannot run it.
        """
        self._kv, self._threads = size.kv_heads, 32 * warps
        sharing, line = size.heads // size.kv_heads, 4 * size.head_dim + 64
        shared = _aligned_128(warps * (tiles * (16 * line + 16) + 4 * line + sharing * (6 * size.head_dim + 72)))
        self.macros: Mapping[str, int] = {
            "SHARING": sharing, "KV": size.kv_heads, "DIM": size.head_dim, "WARPS": warps, "TILES": tiles,
            "SHARED": shared, "BLOCKS": blocks,
        }  # fmt: skip  # one mapping
        if launch is None:
            kernel = CudaKernel(KernelSource(ATTENTION_SOURCE, self.macros), shared, pdl=True)
            kernel.prefer_shared_memory()
            launch = kernel.launch
        self._launch = launch

    def __call__(
        self, qkv: Tensor, q_norm: Tensor, k_norm: Tensor, angles: Tensor, cache: Tensor, pages: Tensor,
        starts: Tensor, positions: Tensor, cache_slots: Tensor, out: Tensor, eps: float,
    ) -> None:  # fmt: skip  # one argument list
        """As `paged_attention`; `cache`: [pages, kv_heads, page size, 2 * head_dim], the last dimension contiguous."""
        self._launch(
            len(qkv) * self._kv, self._threads,
            pack_arguments(
                qkv, q_norm, k_norm, angles, cache.data_ptr(), pages.data_ptr(), starts, positions, cache_slots, out,
                len(starts) - 1, cache.shape[2], cache.stride(0), cache.stride(2), cache.stride(1), pages.stride(0),
                eps,
            ),
        )  # fmt: skip  # one argument list


def _aligned_128(size: int) -> int:
    """`size` rounded up to a multiple of 128 bytes."""
    return -(-size // 128) * 128
