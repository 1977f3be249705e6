"""The talker as a vLLM model.

vLLM's token id is the slot of a session, so (slot, position) reaches every step in any batch order, through chunked
prefill, preemption and recompute, without a request id or a hook into a runner. `forward` appends both to the hidden
states as byte-valued channels, which are exact in any dtype; the runner picks the rows that need a next token, and
`compute_logits` reads there whose they are, samples codebook 0, runs the code predictor, stores the frame for the next
step's embedding, reports it, and answers with one-hot logits: the slot again, or end of speech.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from vllm.model_executor.models.qwen3 import Qwen3Model
from vllm.model_executor.models.utils import maybe_prefix
from vllm.platforms import current_platform

from ..checkpoint import load_checkpoint
from ..codec.options import WorkerOptions
from .embedding import InputEmbedding
from .frames import HEADER
from .predictor import Predictor
from .step import FrameStep
from .wiring import Wiring, die_with

_IDENTITY = 4
"""Channels behind the hidden state: slot and position, two bytes each."""

_BACKBONE = ("talker.model.layers.", "talker.model.norm.")


class VoxgateTalker(nn.Module):
    """Backbone from vLLM; embedding, heads, sampling and code predictor from this package."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__()
        wiring = Wiring.of(vllm_config)
        die_with(wiring.owner_pid)
        if current_platform.is_cpu():
            from . import cpu_layers  # noqa: F401  # takes effect by being imported
        self.model = Qwen3Model(vllm_config=vllm_config, prefix=maybe_prefix(prefix, "model"))
        self.make_empty_intermediate_tensors = self.model.make_empty_intermediate_tensors
        self._wiring = wiring
        self._checkpoint = load_checkpoint(Path(wiring.checkpoint))
        self._device = torch.device(vllm_config.device_config.device)
        self._dtype: torch.dtype = vllm_config.model_config.dtype
        self._hidden = self._checkpoint.talker.hidden
        self._max_rows: int = vllm_config.scheduler_config.max_num_seqs
        self._step: Callable[[Tensor], Tensor] | None = None
        self._embed: InputEmbedding | None = None

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Takes the published tensor names (section D.1); returns the parameters that were filled."""
        own: dict[str, Tensor] = {}

        def backbone() -> Iterable[tuple[str, Tensor]]:
            for name, tensor in weights:
                if name.startswith(_BACKBONE):
                    yield name.removeprefix("talker.model."), tensor
                elif name.startswith("talker."):
                    own[name] = tensor.to(self._device, self._dtype)

        loaded = self.model.load_weights(backbone())
        self._assemble(own)
        # The backbone's own input embedding is never looked at: positions are embedded here.
        return {f"model.{name}" for name in loaded} | {"model.embed_tokens.weight"}

    def _assemble(self, weights: dict[str, Tensor]) -> None:
        checkpoint, wiring = self._checkpoint, self._wiring
        tables = wiring.attach()
        if self._device.type == "cuda":
            from .gpu_tables import map_tables

            map_tables(tables)
        if wiring.codec is not None:
            from ..codec.beside import serve_beside

            serve_beside(WorkerOptions.from_json(wiring.codec))
        with torch.inference_mode():
            shape = wiring.shape
            codes = torch.zeros(shape.slots + 1, shape.frames, shape.groups, dtype=torch.int32, device=self._device)
            self._embed = InputEmbedding(weights, checkpoint, tables, codes)
            predictor = _predictor_for(self._device)(
                weights,
                weights["talker.model.codec_embedding.weight"],
                checkpoint.predictor,
                checkpoint.groups,
                self._max_rows,
            )
            head = weights["talker.codec_head.weight"]
            step = FrameStep(head, predictor, checkpoint, tables, codes, wiring.connect().send)
            self._step = self._eager(step) if self._device.type == "cpu" else self._graphed(step)

    def _eager(self, step: FrameStep) -> Callable[[Tensor], Tensor]:
        def run(states: Tensor) -> Tensor:
            tokens = step(*self._read(states))
            logits = states.new_zeros(len(tokens), self._wiring.shape.slots + 1, dtype=torch.float32)
            return logits.scatter_(1, tokens[:, None], 1.0)

        return run

    def _graphed(self, step: FrameStep) -> Callable[[Tensor], Tensor]:
        from .gpu_step import FrameSender, GraphedStep

        sender = FrameSender(self._max_rows, HEADER + self._checkpoint.groups, self._wiring.connect().send)
        nobody = torch.zeros(1, self._hidden + _IDENTITY, dtype=self._dtype, device=self._device)
        nobody[:, self._hidden] = self._wiring.shape.slots >> 8
        nobody[:, self._hidden + 1] = self._wiring.shape.slots & 255
        graphs = GraphedStep(step, self._read, nobody, self._wiring.shape.slots + 1, self._max_rows, sender.put)
        graphs.capture()
        return graphs

    def embed_input_ids(self, input_ids: Tensor, *_: Any, **__: Any) -> Tensor:
        """For vLLM's interface only; `forward` needs positions to embed."""
        return torch.zeros(len(input_ids), self._hidden, dtype=self._dtype, device=input_ids.device)

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        intermediate_tensors: Any = None,  # noqa: ARG002  # vLLM's signature
        inputs_embeds: Tensor | None = None,  # noqa: ARG002  # vLLM's signature
    ) -> Tensor:
        """Hidden states after the final norm with the row's identity behind them, [n, hidden + 4]."""
        assert self._embed is not None, "weights are loaded before the first step"
        slots, positions = input_ids.long(), positions.long()
        embedded = self._embed(self._known(slots), positions)
        hidden = self.model(input_ids, positions, None, inputs_embeds=embedded)
        identity = torch.stack([slots >> 8, slots & 255, positions >> 8, positions & 255], -1)
        return torch.cat([hidden, identity.to(hidden.dtype)], -1)

    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        """One-hot logits, float32 [n, slots + 1]: the row's own slot, or the last id where its speech ended."""
        assert self._step is not None, "weights are loaded before the first step"
        return self._step(hidden_states)

    def _read(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Hidden states, slots and positions of rows as `forward` returns them."""
        hidden, identity = torch.split(states, [self._hidden, _IDENTITY], -1)
        identity = identity.float().round().long()
        slots = self._known(identity[:, 0] << 8 | identity[:, 1])
        return hidden, slots, identity[:, 2] << 8 | identity[:, 3]

    def _known(self, slots: Tensor) -> Tensor:
        """vLLM's warm-up passes ids that no session ever has, and a step begun before the last one ended its token.

        On a GPU both become the row behind the slots, which is nobody's; on a CPU there is no such step.
        """
        return slots.clamp(0, self._wiring.shape.slots - (self._device.type == "cpu"))


def _predictor_for(device: torch.device) -> type[Predictor]:
    if device.type != "cpu":
        from .gpu_predictor import GpuCodePredictor

        return GpuCodePredictor
    # Its compiler comes with vLLM's CPU build and takes half a second to import.
    from .native_predictor import NativeCodePredictor

    return NativeCodePredictor
