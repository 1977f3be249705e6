"""The code predictor for a few rows on a GPU as one kernel, `csrc/persistent_predictor.cu`, and which sizes it is for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...checkpoint import TransformerSize
from ...cuda.nvrtc import CudaKernel, Launch, pack_arguments
from ...errors import EngineError
from ..reference.predictor_weights import FoldedLayer, FoldedPredictor
from ..reference.sampling import Candidates

log = logging.getLogger(__name__)

SOURCE = Path(__file__).parent.joinpath("csrc/persistent_predictor.cu")
DIM = 128
"""The only width of a head."""
RANKS = 8
"""Blocks of a cluster, which share the inner width of a product."""
ROWS = 16
"""Of a matrix instruction: there are always so many, whether they mean something or not."""
UNIT_COLUMNS = 64
WARPS = 8
SHARED_BYTES = 232448
HOPPER = 9
"""The major compute capability that the kernel is for."""
SPINS = 4_000_000
"""Looks at what others were to send, until something must be wrong: some seconds."""
CLOSE = 0.1
"""Of the spread of a row's logits: what rounding in another order makes of them is less."""


@dataclass(frozen=True, slots=True)
class PredictorShape:
    """The macros of the kernel's source, in lower case.

    `ring`: units of weights fetched ahead; `looks`: pairs of packets that a thread asks for at once.
    """

    hidden: int
    heads: int
    kv: int
    inner: int
    vocab: int
    layers: int
    groups: int
    ring: int = 9
    looks: int = 8

    @property
    def blocks(self) -> int:
        """A cluster for each key-value head."""
        return self.kv * RANKS

    @property
    def threads(self) -> int:
        """Of the four warps that do not compute one fetches; they come in fours to give up registers."""
        return 32 * (WARPS + 4)

    def macros(self) -> dict[str, int]:
        own = {name.upper(): value for name, value in asdict(self).items()}
        return own | {
            "BLOCKS": self.blocks, "RANKS": RANKS, "WARPS": WARPS, "SHARED": SHARED_BYTES, "SPINS": SPINS,
        }  # fmt: skip  # one line

    def fits(self) -> bool:
        """Whether products can be cut as the kernel cuts them."""
        depth, clusters = self.hidden // RANKS, self.kv
        columns = (self.hidden, 2 * self.inner, self.vocab)
        return (
            self.hidden % (RANKS * 32) == 0
            and all(inner % (RANKS * depth) == inner % (64 * WARPS) == 0 for inner in (self.heads * DIM, self.inner))
            and all(width % (clusters * UNIT_COLUMNS) == 0 for width in columns)
            and self.inner // clusters % (2 * UNIT_COLUMNS) == 0
            and self.hidden // 64 * 2 <= 32
            and self.vocab % (64 * WARPS) == 0
            and self.vocab // clusters <= 64 * WARPS
            and self.heads == 2 * self.kv
            and self.groups <= 16 <= self.blocks
        )


def packed(matrices: Tensor, clusters: int, depth: int, *, whole: bool) -> Tensor:
    """[n, out, in] in the order in which blocks, units, warps and lanes take it; `out` is by cluster already.

    [block, n, unit of columns, unit of depth, warp, pair of steps, lane, eight numbers], as [block, n, numbers].
    """
    count, width, inner = matrices.shape
    cut = matrices.reshape(
        count, clusters, width // clusters // UNIT_COLUMNS, WARPS, 8, RANKS, inner // RANKS // depth, depth // 32,
        2, 2, 4, 2,
    )  # fmt: skip  # one argument list
    rank, warp = (3, 5) if whole else (5, 3)
    return cut.permute(1, rank, 0, 2, 6, warp, 7, 4, 10, 8, 9, 11).reshape(clusters * RANKS, count, -1)


def _by_cluster(layer: FoldedLayer, shape: PredictorShape) -> tuple[Tensor, Tensor]:
    """`qkv` and `gate_up`, [out, in]: by cluster queries, key and value; units of gates and of ups in turn."""
    widths = [shape.heads * DIM, shape.kv * DIM, shape.kv * DIM]
    parts = [part.reshape(shape.kv, -1, shape.hidden) for part in torch.split(layer.qkv.t(), widths)]
    halves = layer.gate_up.t().reshape(2, shape.kv, -1, UNIT_COLUMNS, shape.hidden)
    return torch.cat(parts, 1).view(-1, shape.hidden), halves.permute(1, 2, 0, 3, 4).reshape(-1, shape.hidden)


class PersistentPredictor:
    """Draws the codes 1 to groups-1 of up to `ROWS` frames with one launch. Not thread-safe: it owns scratch."""

    def __init__(
        self, shape: PredictorShape, folded: FoldedPredictor, norm_eps: float, launch: Launch | None = None
    ) -> None:
        """`launch`: instead of compiling the kernel for this GPU. Raises EngineError where it cannot run."""
        self._shape, self._eps = shape, norm_eps
        if launch is None:
            kernel = CudaKernel(SOURCE, shape.macros(), SHARED_BYTES, cooperative=True)
            kernel.require_resident(shape.kv, RANKS, shape.threads)
            launch = kernel.launch
        self._launch = launch

        def cut(matrices: Sequence[Tensor], *, whole: bool) -> Tensor:
            return packed(torch.stack(list(matrices)), shape.kv, shape.hidden // RANKS, whole=whole)

        layers = folded.layers
        by_cluster = [_by_cluster(layer, shape) for layer in layers]
        of_layers = [
            cut([qkv for qkv, _ in by_cluster], whole=True),
            cut([layer.out.t() for layer in layers], whole=False),
            cut([gate_up for _, gate_up in by_cluster], whole=True),
            cut([layer.down.t() for layer in layers], whole=False),
        ]
        self._weights = [
            torch.cat(of_layers, 2), cut([head.t() for head in folded.heads], whole=True),
            torch.stack([layer.rope_cos for layer in layers]), torch.stack([layer.rope_sin for layer in layers]),
            *(table.contiguous() for table in folded.inputs),
            *(table.float().square().sum(1) for table in folded.inputs),
        ]  # fmt: skip  # one line a kind
        like = folded.heads[0]

        def packets(*size: int) -> Tensor:
            return torch.zeros(*size, dtype=torch.int64, device=like.device)

        self._cache = like.new_zeros(shape.layers, shape.blocks, 2, 2, 16, DIM)
        self._logits = packets(ROWS, shape.vocab)
        self._packets = [
            packets(2, shape.hidden * 8), packets(shape.heads * DIM * 8), packets(shape.inner * 8),
            packets(2, RANKS, shape.hidden // UNIT_COLUMNS, 2), self._logits, packets(ROWS),
        ]  # fmt: skip  # one argument list
        self._epoch = torch.zeros(1, dtype=torch.int32, device=like.device)

    def __call__(self, start: Tensor, first: Tensor, candidates: Candidates, noise: Tensor) -> Tensor:
        """`start`: the talker's hidden states through the projection, [n, hidden]; the rest as of `CodePredictor`."""
        rows = len(start)
        codes = torch.empty(rows, self._shape.groups - 1, dtype=torch.int64, device=start.device)
        start, first, noise = start.contiguous(), first.contiguous(), noise.contiguous()
        sum_sq = start.float().square().sum(1)
        argument = pack_arguments(
            *self._weights, start, sum_sq, first, codes, noise, candidates.inverse_temperature, candidates.top_p,
            candidates.top_k, self._cache, *self._packets, self._epoch, rows, self._eps,
        )  # fmt: skip  # one argument list
        self._launch(self._shape.blocks, self._shape.threads, argument)
        return codes

    def last_logits(self, rows: int) -> Tensor:
        """What the last group's codes were drawn from, float32 [rows, codebook]."""
        values = self._logits[:rows].view(torch.float32)[:, ::2]
        # Pairs of a thread that draws, threads, the two of a pair.
        pairs = values.view(rows, -1, 32 * WARPS, 2)
        return pairs.transpose(2, 3).reshape(rows, -1)


def predictor_shape_for(size: TransformerSize, groups: int, vocab: int, dtype: torch.dtype) -> PredictorShape | None:
    """None where the kernel does not fit the model."""
    shape = PredictorShape(size.hidden, size.heads, size.kv_heads, size.intermediate, vocab, size.layers, groups)
    return shape if dtype is torch.bfloat16 and size.head_dim == DIM and shape.fits() else None


Reference = Callable[[Tensor, Tensor, Candidates, Tensor], tuple[Tensor, Tensor]]
"""Codes, and what the last of them were drawn from, by the arguments of `PersistentPredictor`."""


def persistent_predictor_for(
    folded: FoldedPredictor, size: TransformerSize, groups: int, reference: Reference
) -> PersistentPredictor | None:
    """For this model on the current GPU; None where the kernel cannot be had, or does not do what `reference` does."""
    like = folded.heads[0]
    shape = predictor_shape_for(size, groups, like.shape[1], like.dtype)
    # Nothing catches a kernel that does not end: it is tried on such GPUs only as it has been seen to end on.
    if shape is None or torch.cuda.get_device_capability()[0] != HOPPER:
        return None
    try:
        predictor = PersistentPredictor(shape, folded, size.norm_eps)
        if self_test(predictor, reference, shape, like.device):
            return predictor
        reason: object = "its codes are not those of the others"
    except (EngineError, OSError) as error:
        reason = error
    log.warning("a frame's codes are made by several kernels, more slowly: %s", reason)
    return None


def self_test(
    predictor: PersistentPredictor, reference: Reference, shape: PredictorShape, device: torch.device
) -> bool:
    """Whether some rows have all the same codes, which rounding leaves at least, and their last logits are close."""
    # A model may be loading: there are other defaults of device and dtype then.
    generator = torch.Generator("cpu").manual_seed(0)
    cpu: Any = {"device": "cpu", "dtype": torch.float32}
    start = torch.randn(ROWS, shape.hidden, generator=generator, **cpu).bfloat16().to(device)
    first = torch.randint(shape.vocab, (ROWS,), generator=generator, device="cpu").to(device)
    noise = torch.rand(ROWS, shape.groups - 1, generator=generator, **cpu).to(device)
    candidates = Candidates(
        torch.ones(ROWS, 1, dtype=torch.float32, device=device),
        torch.zeros(ROWS, dtype=torch.bool, device=device),
        torch.ones(ROWS, 1, dtype=torch.int64, device=device),
        torch.ones(ROWS, 1, dtype=torch.float32, device=device),
        shape.vocab,
    )
    expected, logits = reference(start, first, candidates, noise)
    made = predictor(start, first, candidates, noise)
    same = (made == expected).all(1)
    close = (predictor.last_logits(ROWS) - logits).abs().amax(1) < CLOSE * logits.std()
    return bool(same.sum() * 4 >= ROWS) and bool(close[same].all())
