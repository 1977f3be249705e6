"""The vocoder's activation on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor


class Snake:
    """SnakeBeta: x + gain * sin^2(frequency * x), with a frequency and a gain per channel."""

    LINE = 512
    """Numbers per row of the elementwise loops; rows of few channels are joined, because short loops are slow."""

    def __init__(self, frequency: Tensor, gain: Tensor, steps_per_frame: int) -> None:
        """`frequency`, `gain`: [channels]; a frame has `steps_per_frame` steps."""
        most = max(1, self.LINE // len(gain))
        joined = max(n for n in range(1, most + 1) if steps_per_frame % n == 0)
        self.frequency, self.gain = frequency.repeat(joined), gain.repeat(joined)
        self.line = len(self.gain)

    def __call__(self, x: Tensor, out: Tensor) -> None:
        """Writes the activation of `x` to `out`: contiguous tensors of one shape, or the same tensor."""
        lines, written = x.view(-1, self.line), out.view(-1, self.line)
        if x.dtype == torch.float32:
            # Imported with the first call, because a GPU never calls.
            from .snake_loops import activate

            activate(lines.numpy(), self.frequency.numpy(), self.gain.numpy(), written.numpy())
        else:  # float64, for comparisons
            # The squared sine, not 1 - cos, which loses small values where the gain is large.
            torch.addcmul(lines, torch.mul(lines, self.frequency).sin_().square_(), self.gain, out=written)
