"""vLLM's layers for the backbone on a CPU, with its own compiled kernels in place of several small operations each.

vLLM leaves these to torch.compile on a CPU, which wants a C++ compiler at run time; without one they are a third of a
step's time. `register_oot` is its way to replace a layer; importing this module does, in this process only.
"""

from __future__ import annotations

from torch import Tensor
from vllm.model_executor.layers.activation import SiluAndMul
from vllm.model_executor.layers.layernorm import RMSNorm

from .vllm_ops import add_rms_norm, rms_norm, swiglu


@RMSNorm.register_oot
class CompiledRMSNorm(RMSNorm):
    """RMSNorm, with or without a residual that is added first."""

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        if residual is None:
            return rms_norm(x.contiguous(), self.weight.data, self.variance_epsilon)
        add_rms_norm(x, residual, self.weight.data, self.variance_epsilon)
        return x, residual


@SiluAndMul.register_oot
class CompiledSiluAndMul(SiluAndMul):
    """SwiGLU's gate."""

    def forward(self, x: Tensor) -> Tensor:
        return swiglu(x)
