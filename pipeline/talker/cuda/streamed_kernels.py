"""A layer for a few rows in two kernels of CUDA C++: attention, and all that is between it and the next one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor

from ...checkpoint import TransformerSize
from ...cuda.nvrtc import CudaKernel, Launch, pack_arguments

OUT_MLP_QKV_SOURCE, ATTENTION_SOURCE = (
    Path(__file__).parent.joinpath("csrc/out_mlp_qkv.cu"),
    Path(__file__).parent.joinpath("csrc/streamed_attention.cu"),
)
BLOCKS = 128
"""Of `out_mlp_qkv`, one on a multiprocessor; they wait for one another, so all must run at once."""
HEAD_DIM, SHARING = 128, 2
"""What `streamed_attention` is written for."""
ATTEND_WARPS, ATTEND_TILES = 4, 1
"""Warps of a block of `streamed_attention`, and tiles of 16 positions each that every one of them reads ahead."""
SPINS = 1 << 22
"""How often a block asks whether the others are done, some seconds in all, before it gives up."""


@dataclass(frozen=True, slots=True)
class LayerTiling:
    """A layer's sizes for `out_mlp_qkv`, and how it is cut.

    `eights`: of rows; `ranks`: blocks of a cluster, which share the inner width; `span`: inner width of a unit of 16
    lines, of which `ring` are in shared memory; `batch`: units' lines whose sums are added up at once; `down_passes`:
    over the inner width of the last product, for want of `registers`; `sums`: parts of a row's sum_sq.
    """

    hidden: int
    mixed: int
    inner: int
    qkv: int
    eights: int = 2
    ranks: int = 2
    span: int = 512
    ring: int = 9
    batch: int = 2
    down_passes: int = 6
    warps: int = 8
    blocks: int = BLOCKS
    sums: int = BLOCKS
    registers: int = 136

    def macros(self) -> dict[str, int]:
        own = {name.upper(): value for name, value in asdict(self).items()}
        return own | {"SHARED": self.shared_bytes(), "SPINS": SPINS, "LOAD_WARPS": 1}

    def shared_bytes(self) -> int:
        tile = self.eights * 512
        inbox = self.ranks * (max(2 * self.inner, self.qkv) // 16 // self.blocks) * tile
        ring, parts = self.ring * 32 * self.span, self.warps * self.batch * tile
        return _lines(ring + parts + inbox + self.eights * 32 + 16 * (2 * self.ring + 1))

    def fits(self) -> bool:
        """Whether its products can be cut like this."""
        wide, narrow = (2 * self.inner, self.qkv), self.hidden
        return (
            self.span == self.warps * 32 * max(self.span // self.warps // 32, 1)
            and all(width % (16 * self.blocks) == 0 for width in wide)
            and narrow == 16 * self.blocks <= 16 * self.sums
            and all(depth % (self.ranks * self.span) == 0 for depth in (self.hidden, self.mixed, self.inner))
            and self.inner // (self.ranks * self.span) % self.down_passes == 0
            and self.ranks % self.batch == 0
            and (self.down_passes == 1 or self.ranks == self.batch)
        )


def layer_tilings(size: TransformerSize) -> tuple[LayerTiling, ...]:
    """For up to 8, 16 and 32 rows; each takes weights as laid out for the others, and adds up in the same order."""
    queries, keys = size.heads * size.head_dim, size.kv_heads * size.head_dim
    widths = size.hidden, queries, size.intermediate, queries + 2 * keys
    return (
        LayerTiling(*widths, eights=1),
        LayerTiling(*widths, eights=2),
        LayerTiling(*widths, eights=4, ring=7, registers=168),
    )


def fits(size: TransformerSize) -> bool:
    """Whether both kernels can be had for a model of this size."""
    heads = size.head_dim == HEAD_DIM and size.heads == SHARING * size.kv_heads
    return heads and all(cut.fits() for cut in layer_tilings(size))


def packed_bytes(size: TransformerSize) -> int:
    """Of the weights as `packed` lays them out, in bfloat16; none where the kernels do not fit."""
    if not fits(size):
        return 0
    cut = layer_tilings(size)[0]
    return 2 * size.layers * cut.hidden * (cut.mixed + 3 * cut.inner + cut.qkv)


def packed(matrix: Tensor, cut: LayerTiling, *, passes: int = 1, halves: bool = False) -> Tensor:
    """`matrix` [width, depth] in the order in which blocks, units, warps and lanes take it; `halves`: gate and up.

    [cluster, rank, pass, tile, unit of depth, warp, group of 32, half of a tile, line, pair, eight numbers].
    """
    width, depth = matrix.shape
    lines = matrix.view(2, -1, 8, depth).transpose(0, 1) if halves else matrix
    groups = cut.span // cut.warps // 32
    cut_up = lines.reshape(
        cut.blocks // cut.ranks, width * cut.ranks // cut.blocks // 16, 2, 8,
        cut.ranks, passes, depth // cut.ranks // passes // cut.span, cut.warps, groups, 4, 8,
    )  # fmt: skip  # lines, and what is in one
    return cut_up.permute(0, 4, 5, 1, 6, 7, 8, 2, 3, 9, 10).reshape(width, depth).contiguous()


class OutMlpQkv:
    """From the attention of a layer to the queries, keys and values of the next, of up to 8 * `eights` rows."""

    def __init__(self, cut: LayerTiling, launch: Launch | None = None) -> None:
        """`launch`: instead of compiling the kernel for this GPU. Raises EngineError where it cannot run."""
        self.cut = cut
        self._threads = 32 * (cut.warps + 1)
        if launch is None:
            kernel = CudaKernel(OUT_MLP_QKV_SOURCE, cut.macros(), cut.shared_bytes(), pdl=True)
            kernel.require_resident(cut.blocks // cut.ranks, cut.blocks, self._threads)
            kernel.prefer_shared_memory()
            launch = kernel.launch
        self._launch = launch

    def __call__(
        self, out: Tensor | None, gate_up: Tensor | None, down: Tensor | None, qkv: Tensor | None, mixed: Tensor,
        x: Tensor, inner: Tensor, queries: Tensor, residual: Tensor, sum_sq: Tensor, done: Tensor, eps: float,
    ) -> None:  # fmt: skip  # one argument list
        """Matrices as of `packed`: all but `qkv` None in front of the first layer, `qkv` None behind the last.

        `mixed`, `x`, `inner`, `queries`: bfloat16 [n, width]; `residual`: float32 [n, hidden], and `x` is it, rounded;
        `sum_sq`: float32 [n, sums]; `done`: int32 [3, ranks], zero.
        """
        self._launch(
            self.cut.blocks, self._threads,
            pack_arguments(out, gate_up, down, qkv, mixed, x, inner, queries, residual, sum_sq, done, len(x), eps),
        )  # fmt: skip  # one argument list


class StreamedAttention:
    """Attention of `SHARING` query heads a key-value head, with norm, rotary embedding and cache."""

    def __init__(
        self, size: TransformerSize, warps: int = ATTEND_WARPS, tiles: int = ATTEND_TILES,
        launch: Launch | None = None, blocks: int = 0,
    ) -> None:  # fmt: skip  # one argument list
        """`launch`: instead of compiling the kernel for this GPU; `blocks`: with it, how many there are. Raises
        EngineError where it cannot run.
        """
        self._kv, self._threads = size.kv_heads, 32 * warps
        sharing, line = size.heads // size.kv_heads, 4 * size.head_dim + 64
        shared = _lines(warps * (tiles * (16 * line + 16) + 4 * line + sharing * (6 * size.head_dim + 72)))
        self.macros: Mapping[str, int] = {
            "SHARING": sharing, "KV": size.kv_heads, "DIM": size.head_dim, "WARPS": warps, "SLOTS": tiles,
            "SHARED": shared, "BLOCKS": blocks,
        }  # fmt: skip  # one mapping
        if launch is None:
            kernel = CudaKernel(ATTENTION_SOURCE, self.macros, shared, pdl=True)
            kernel.prefer_shared_memory()
            launch = kernel.launch
        self._launch = launch

    def __call__(
        self, qkv: Tensor, q_norm: Tensor, k_norm: Tensor, angles: Tensor, cache: Tensor, pages: Tensor,
        starts: Tensor, positions: Tensor, places: Tensor, out: Tensor, eps: float,
    ) -> None:  # fmt: skip  # one argument list
        """As `paged_attention`; `cache`: [pages, kv_heads, places, 2 * head_dim] in any order in memory but the last."""
        self._launch(
            len(qkv) * self._kv, self._threads,
            pack_arguments(
                qkv, q_norm, k_norm, angles, cache.data_ptr(), pages.data_ptr(), starts, positions, places, out,
                len(starts) - 1, cache.shape[2], cache.stride(0), cache.stride(2), cache.stride(1), pages.stride(0),
                eps,
            ),
        )  # fmt: skip  # one argument list


def _lines(size: int) -> int:
    """Of 128 bytes, in bytes."""
    return -(-size // 128) * 128
