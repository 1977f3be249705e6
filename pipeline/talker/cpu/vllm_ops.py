"""Layers of vLLM's backbone on a CPU, replaced by ones that call vLLM's own compiled operations.

On a CPU vLLM builds a norm or an activation from up to seven PyTorch operations and relies on torch.compile, which
needs a C++ compiler at run time; without one they take a third of a step. `register_oot` is vLLM's way to replace a
layer: importing this module replaces both for the whole process. The compiled operations refuse widths that are no
multiple of their vector; PyTorch's own operations compute those, which no published checkpoint has.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from vllm.model_executor.layers.activation import SiluAndMul
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.platforms import current_platform

current_platform.import_kernels()

VECTOR = 8
"""Numbers per vector of the compiled operations, in every dtype."""


@RMSNorm.register_oot
class CompiledRMSNorm(RMSNorm):
    """RMSNorm, optionally of the sum with a residual."""

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """The norm of `x`; with a residual, the norm of their sum and the sum. May overwrite both then."""
        weight, eps = self.weight.data, self.variance_epsilon
        if x.shape[-1] % VECTOR:
            total = x if residual is None else x + residual
            normed = F.rms_norm(total, weight.shape, weight, eps)
            return normed if residual is None else (normed, total)
        if residual is None:
            x = x.contiguous()
            out = torch.empty_like(x)
            torch.ops._C.rms_norm.default(out, x, weight, eps)
            return out
        torch.ops._C.fused_add_rms_norm.default(x, residual, weight, eps)
        return x, residual


@SiluAndMul.register_oot
class CompiledSiluAndMul(SiluAndMul):
    """The gate of SwiGLU."""

    def forward(self, x: Tensor) -> Tensor:
        """silu(gate) * up, [n, d], of `x` [n, 2 * d], gate first."""
        width = x.shape[1] // 2
        if width % VECTOR:
            return F.silu(x[:, :width]) * x[:, width:]
        out = x.new_empty(x.shape[0], width)
        torch.ops._C.silu_and_mul.default(out, x)
        return out
