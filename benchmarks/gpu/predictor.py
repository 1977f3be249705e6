"""Part `predictor` of `voxgate bench gpu`: the code predictor of a checkpoint alone, with random batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint, load_checkpoint
from voxgate.pipeline.talker.cuda.predictor.predictor import GpuCodePredictor
from voxgate.pipeline.talker.reference.sampling import Candidates

TEMPERATURE, TOP_K = 0.9, 50


@dataclass(frozen=True, slots=True)
class LoadedPredictor:
    """The predictor of a checkpoint, on the GPU."""

    predictor: GpuCodePredictor
    checkpoint: TalkerCheckpoint
    groups: int

    @classmethod
    def load(cls, folder: Path, max_rows: int, groups: int | None = None, **options: Any) -> LoadedPredictor:
        """`groups`: of its codes, by default all; `options`: keyword arguments of `GpuCodePredictor`."""
        checkpoint = load_checkpoint(folder)
        groups = groups or checkpoint.groups
        with safe_open(folder / "model.safetensors", "pt", "cuda") as stored:
            names = [name for name in stored.keys() if "code_predictor" in name]  # noqa: SIM118  # no mapping
            weights = {name: stored.get_tensor(name) for name in names}
            first = stored.get_tensor("talker.model.codec_embedding.weight")
        predictor = GpuCodePredictor(weights, first, checkpoint.predictor, groups, max_rows, **options)
        return cls(predictor, checkpoint, groups)

    def frames(self, rows: int, seed: int = 0) -> Callable[[object], Tensor]:
        """A function, of an argument that it ignores, that computes the codes of one random batch, int64 [rows, n]."""
        device, vocab = torch.device("cuda"), self.checkpoint.codebook
        generator = torch.Generator(device).manual_seed(seed)
        hidden = torch.randn(rows, self.checkpoint.talker.hidden, device=device, generator=generator).bfloat16()
        first = torch.randint(vocab, (rows,), device=device, generator=generator)
        noise = torch.rand(rows, self.groups - 1, device=device, generator=generator)
        temperature, top_k = torch.full((rows,), TEMPERATURE, device=device), torch.full((rows,), TOP_K, device=device)
        candidates = Candidates.on_device(temperature, top_k, torch.ones(rows, device=device), vocab)
        return lambda _: self.predictor(hidden, first, candidates, noise)
