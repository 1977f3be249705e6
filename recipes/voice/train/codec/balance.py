"""Gradients of a batch at the generated audio, limited for each window and brought into a fixed proportion.

The gradient of a logarithmic distance is largest where the sound is faintest: in a batch of sixteen windows, one with
silence had a larger gradient than all others, and spectral losses had several times the discriminators' gradient. The
proportion is kept as EnCodec's balancer does (Défossez et al., 2022).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def balanced(gradients: Sequence[tuple[Tensor, float | Tensor]]) -> tuple[Tensor, list[Tensor]]:
    """Sum of gradients, float [batch, n] each, in which the norm of a window is at most the share given with each.

    Norms are relative to the geometric mean over the windows, which is returned too; larger ones become equal to it. A
    gradient with values that are not finite does not count.
    """
    total = torch.zeros_like(gradients[0][0])
    usual_norms = []
    for gradient, share in gradients:
        norms = torch.linalg.vector_norm(gradient, dim=1, keepdim=True).clamp(min=1e-12)
        usual = norms.log().mean().exp()
        scaled = gradient * (share / torch.maximum(norms, usual))
        total = total + torch.where(usual.isfinite(), scaled, 0.0)
        usual_norms.append(usual)
    return total, usual_norms
