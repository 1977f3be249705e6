"""The code predictor of few rows as one kernel (`../csrc/persistent_predictor.cu`): sizes, packed weights, self-test.

The kernel is compiled for each size of VARIANTS. All of them read the same packed weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from voxgate.codecs.neural.cuda.tiles import ChipLimits

from ....checkpoint.checkpoint import TransformerSize
from ....cuda.fast_paths import FastPath
from ....cuda.nvrtc import CudaKernel, KernelSource, Launch, pack_arguments
from ....cuda.self_test import RandomInputs, accelerated, disabled
from ...reference.predictor_weights import FoldedLayer, FoldedPredictor
from ...reference.sampling import Candidates

SOURCE = Path(__file__).parents[1] / "csrc/persistent_predictor.cu"
DIM = 128
"""The width of a head that the kernel supports."""
RANKS = 8
"""Blocks of a cluster, which divide the inner width of a product among them."""
TILE_ROWS = 16
"""Rows of a matrix instruction, all of which are always computed."""
VARIANTS = {16: FastPath.PERSISTENT_PREDICTOR, 32: FastPath.PERSISTENT_PREDICTOR_32}
"""Largest batches of the compiled variants. Each serves the batches that need as many tiles of TILE_ROWS rows."""
RINGS = {16: 9, 32: 6}
"""By variant: units of weights for which a block has shared memory."""
UNIT_COLUMNS = 64
"""Columns of a unit, the part of a product that a block computes at a time."""
WARPS = 8
"""Warps of a block that compute."""
SHARED_BYTES = 232448
"""Shared memory of a block: the most that Hopper allows."""
SPINS = 4_000_000
"""Polls for data of other blocks, some seconds, after which the kernel traps instead of hanging."""
LOGIT_TOLERANCE = 0.1
"""Share of a row's standard deviation of logits, above the effect of rounding in another order."""


@dataclass(frozen=True, slots=True)
class PredictorShape:
    """Sizes of the kernel; its macros, in lower case.

    `rows`: one of VARIANTS; `polls`: pairs of packets that a thread requests at a time.
    """

    hidden: int
    heads: int
    kv: int
    inner: int
    vocab: int
    layers: int
    groups: int
    rows: int = TILE_ROWS
    polls: int = 8

    @property
    def blocks(self) -> int:
        """One cluster for each key-value head."""
        return self.kv * RANKS

    @property
    def threads(self) -> int:
        """Threads of a block. One of the four further warps loads weights; registers are released by groups of four."""
        return 32 * (WARPS + 4)

    def macros(self) -> dict[str, int]:
        sizes = {name.upper(): value for name, value in asdict(self).items()}
        return sizes | {
            "BLOCKS": self.blocks, "RANKS": RANKS, "WARPS": WARPS, "SHARED": SHARED_BYTES, "SPINS": SPINS,
            "RING": RINGS[self.rows],
        }  # fmt: skip  # one mapping

    def fits(self) -> bool:
        """Whether the kernel can divide the products of these sizes."""
        depth, clusters, tiles = self.hidden // RANKS, self.kv, self.rows // TILE_ROWS
        columns = (self.hidden, 2 * self.inner, self.vocab)
        return (
            self.hidden in (256, 512, 1024)
            and all(inner % (RANKS * depth) == inner % (64 * WARPS) == 0 for inner in (self.heads * DIM, self.inner))
            and all(width % (clusters * UNIT_COLUMNS) == 0 for width in columns)
            and self.inner // clusters % (2 * UNIT_COLUMNS) == 0
            and tiles * self.hidden // clusters <= 64 * WARPS
            and self.vocab % (64 * WARPS) == 0
            and tiles * self.vocab // clusters <= 64 * WARPS
            and self.heads == 2 * self.kv
            and self.groups <= 16
        )


def predictor_shape_for(
    size: TransformerSize, groups: int, vocab: int, dtype: torch.dtype, rows: int = TILE_ROWS
) -> PredictorShape | None:
    """The sizes of a model for the variant of `rows` rows; None where the kernel does not support them."""
    shape = PredictorShape(size.hidden, size.heads, size.kv_heads, size.intermediate, vocab, size.layers, groups, rows)
    return shape if dtype is torch.bfloat16 and size.head_dim == DIM and shape.fits() else None


def persistent_predictor_source(shape: PredictorShape) -> KernelSource:
    """A variant of the kernel for a model."""
    return KernelSource(SOURCE, shape.macros())


class PackedPredictor:
    """A predictor's weights in the order in which the kernel's parameters name them and its blocks read them."""

    def __init__(self, shape: PredictorShape, folded: FoldedPredictor) -> None:
        """`shape`: of any variant."""

        def pack(matrices: Sequence[Tensor], *, whole_depth: bool) -> Tensor:
            depth = shape.hidden // RANKS
            return packed(torch.stack(list(matrices)), shape.kv, depth, whole_depth=whole_depth)

        layers = folded.layers
        by_cluster = [_by_cluster(layer, shape) for layer in layers]
        layer_weights = [
            pack([qkv for qkv, _ in by_cluster], whole_depth=True),
            pack([layer.out.t() for layer in layers], whole_depth=False),
            pack([gate_up for _, gate_up in by_cluster], whole_depth=True),
            pack([layer.down.t() for layer in layers], whole_depth=False),
        ]
        self.tensors = [
            torch.cat(layer_weights, 2), pack([head.t() for head in folded.heads], whole_depth=True),
            torch.stack([layer.rope_cos for layer in layers]), torch.stack([layer.rope_sin for layer in layers]),
            *(table.contiguous() for table in folded.inputs),
            *(table.float().square().sum(1) for table in folded.inputs),
        ]  # fmt: skip  # one line a kind


class PersistentPredictor:
    """Draws the codes 1 to groups - 1 of up to `shape.rows` frames with one launch.

    Not thread-safe: calls share buffers.
    """

    def __init__(
        self, shape: PredictorShape, packed: PackedPredictor, norm_eps: float, launch: Launch | None = None
    ) -> None:
        """`launch`: used instead of compiling the kernel for this GPU.

        Raises EngineError where the GPU cannot run it.
        """
        self._shape, self._packed, self._eps = shape, packed, norm_eps
        if launch is None:
            kernel = CudaKernel(persistent_predictor_source(shape), SHARED_BYTES, cooperative=True)
            kernel.require_resident(shape.kv, RANKS, shape.threads)
            launch = kernel.launch
        self._launch = launch
        like, tiles = packed.tensors[0], shape.rows // TILE_ROWS

        def packets(*size: int) -> Tensor:
            return torch.zeros(*size, dtype=torch.int64, device=like.device)

        self._cache = like.new_zeros(shape.layers, shape.blocks, 2 * tiles, 2, 16, DIM)
        self._logits = packets(shape.rows, shape.vocab)
        self._packets = [
            packets(2, shape.hidden * shape.rows // 2), packets(shape.heads * DIM * shape.rows // 2),
            packets(shape.inner * shape.rows // 2), packets(2, tiles, RANKS, shape.hidden // UNIT_COLUMNS, 2),
            self._logits, packets(shape.rows),
        ]  # fmt: skip  # one argument list
        self._epoch = torch.zeros(1, dtype=torch.int32, device=like.device)

    def __call__(self, start: Tensor, first: Tensor, candidates: Candidates, noise: Tensor) -> Tensor:
        """Codes, int64 [n, groups - 1]. `start`: projected hidden states, [n, hidden]; others as of `CodePredictor`."""
        rows = len(start)
        codes = torch.empty(rows, self._shape.groups - 1, dtype=torch.int64, device=start.device)
        start, first, noise = start.contiguous(), first.contiguous(), noise.contiguous()
        sum_sq = start.float().square().sum(1)
        params = pack_arguments(
            *self._packed.tensors, start, sum_sq, first, codes, noise, candidates.inverse_temperature, candidates.top_p,
            candidates.top_k, self._cache, *self._packets, self._epoch, rows, self._eps,
        )  # fmt: skip  # one argument list
        self._launch(self._shape.blocks, self._shape.threads, params)
        return codes

    def last_logits(self, rows: int) -> Tensor:
        """Logits of the last group of the latest call, float32 [rows, codebook]."""
        # The low half of each packet. In memory: pairs of a drawing thread, threads, the two of a pair.
        values = self._logits[:rows].view(torch.float32)[:, ::2]
        pairs = values.view(rows, -1, 32 * WARPS, 2)
        return pairs.transpose(2, 3).reshape(rows, -1)


def packed(matrices: Tensor, clusters: int, depth: int, *, whole_depth: bool) -> Tensor:
    """[n, out, in] in the order in which blocks, units, warps and lanes read it; `out` is ordered by cluster already.

    [block, n, unit of columns, unit of depth, warp, pair of steps, lane, eight numbers], as [block, n, numbers].
    `whole_depth`: a block computes its own columns over the whole inner width, which its warps divide among them;
    otherwise all columns of the cluster over its share of the inner width, and its warps divide the columns.
    """
    count, width, inner = matrices.shape
    split = matrices.reshape(
        count, clusters, width // clusters // UNIT_COLUMNS, WARPS, 8, RANKS, inner // RANKS // depth, depth // 32,
        2, 2, 4, 2,
    )  # fmt: skip  # one argument list
    rank, warp = (3, 5) if whole_depth else (5, 3)
    return split.permute(1, rank, 0, 2, 6, warp, 7, 4, 10, 8, 9, 11).reshape(clusters * RANKS, count, -1)


def _by_cluster(layer: FoldedLayer, shape: PredictorShape) -> tuple[Tensor, Tensor]:
    """`qkv` and `gate_up` as [out, in], by cluster: its queries, key and value; its units of gate and up in turn."""
    widths = [shape.heads * DIM, shape.kv * DIM, shape.kv * DIM]
    parts = [part.reshape(shape.kv, -1, shape.hidden) for part in torch.split(layer.qkv.t(), widths)]
    halves = layer.gate_up.t().reshape(2, shape.kv, -1, UNIT_COLUMNS, shape.hidden)
    return torch.cat(parts, 1).view(-1, shape.hidden), halves.permute(1, 2, 0, 3, 4).reshape(-1, shape.hidden)


Reference = Callable[[Tensor, Tensor, Candidates, Tensor], tuple[Tensor, Tensor]]
"""Codes and the logits of the last group, from the arguments of `PersistentPredictor`."""


def persistent_predictors_for(
    folded: FoldedPredictor, size: TransformerSize, groups: int, chip: ChipLimits, reference: Reference, max_rows: int
) -> dict[int, PersistentPredictor]:
    """`PersistentPredictor` for this model on the current GPU, by the tiles of its rows.

    Without those that are unsupported, or fail their self-tests, or are larger than `max_rows` rows need.
    """
    like = folded.heads[0]
    built: dict[int, PersistentPredictor] = {}
    packed: PackedPredictor | None = None
    for rows, path in VARIANTS.items():
        if rows - TILE_ROWS >= max_rows:
            continue
        shape = predictor_shape_for(size, groups, like.shape[1], like.dtype, rows)
        # A kernel that hangs cannot be stopped, so it is only run on GPUs on which it was tested.
        reason = path.missing(chip)
        if shape is None or reason is not None:
            disabled(path, reason or "the model has another size or precision", expected=True)
            continue
        weights = packed = packed or PackedPredictor(shape, folded)
        predictor = accelerated(
            path,
            partial(PersistentPredictor, shape, weights, size.norm_eps),
            partial(self_test, reference=reference, shape=shape, rows=min(rows, max_rows), device=like.device),
        )
        if predictor is not None:
            built[rows // TILE_ROWS] = predictor
    return built


def self_test(
    predictor: PersistentPredictor, reference: Reference, shape: PredictorShape, rows: int, device: torch.device
) -> bool:
    """Whether a quarter of each tile's rows have the codes of `reference`, and those rows nearly the same last logits.

    A different rounding may change any code, and then all later codes of its row.
    """
    inputs = RandomInputs()
    start = inputs.normal(rows, shape.hidden).bfloat16().to(device)
    first = inputs.integers(shape.vocab, rows).to(device)
    noise = inputs.uniform(rows, shape.groups - 1).to(device)
    candidates = Candidates(
        torch.ones(rows, 1, dtype=torch.float32, device=device),
        torch.zeros(rows, dtype=torch.bool, device=device),
        torch.ones(rows, 1, dtype=torch.int64, device=device),
        torch.ones(rows, 1, dtype=torch.float32, device=device),
        shape.vocab,
    )
    expected, logits = reference(start, first, candidates, noise)
    codes = predictor(start, first, candidates, noise)
    same = (codes == expected).all(1)
    close = (predictor.last_logits(rows) - logits).abs().amax(1) < LOGIT_TOLERANCE * logits.std()
    enough = all(int(tile.sum()) * 4 >= len(tile) for tile in torch.split(same, TILE_ROWS))
    return enough and bool(close[same].all())
