"""Fused operations that PyTorch lacks on a CPU, taken from vLLM's compiled library.

PyTorch builds RMSNorm on a CPU from seven operations; in the code predictor that alone is a third of a step.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from vllm.platforms import current_platform

if current_platform.is_cpu():
    current_platform.import_kernels()

    def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Root-mean-square norm over the last dimension; `x` contiguous, any shape."""
        out = torch.empty_like(x)
        torch.ops._C.rms_norm.default(out, x, weight, eps)
        return out

    def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> None:
        """In place: `residual` becomes their sum and `x` that sum's norm; both contiguous."""
        torch.ops._C.fused_add_rms_norm.default(x, residual, weight, eps)

    def swiglu(gate_up: Tensor) -> Tensor:
        """silu(gate) * up of [n, 2d], halves side by side; returns [n, d]."""
        out = gate_up.new_empty(gate_up.shape[0], gate_up.shape[1] // 2)
        torch.ops._C.silu_and_mul.default(out, gate_up)
        return out

else:

    def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Root-mean-square norm over the last dimension."""
        return F.rms_norm(x, (x.shape[-1],), weight, eps)

    def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> None:
        """In place: `residual` becomes their sum and `x` that sum's norm."""
        residual += x
        x.copy_(F.rms_norm(residual, (x.shape[-1],), weight, eps))

    def swiglu(gate_up: Tensor) -> Tensor:
        """silu(gate) * up of [n, 2d], halves side by side; returns [n, d]."""
        gate, up = gate_up.chunk(2, -1)
        return F.silu(gate) * up
