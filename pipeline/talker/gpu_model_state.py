"""What vLLM's runner leaves to a model: how it samples, and what it prepares for attention before a step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from vllm.config.compilation import CUDAGraphMode
from vllm.v1.worker.gpu.input_batch import get_num_sampled_and_rejected
from vllm.v1.worker.gpu.model_states.default import DefaultModelState
from vllm.v1.worker.gpu.sample.output import SamplerOutput


class TalkerModelState(DefaultModelState):
    """The model draws its tokens itself, and its graphs need nothing that vLLM prepares for its own attention."""

    def custom_sampler(self, sampler: Any) -> tuple[Any, Any]:
        """vLLM's own would launch half a dozen kernels to find the token that it is given."""
        return TokenSampler(sampler.req_states), None

    def prepare_attn(
        self, input_batch: Any, cudagraph_mode: CUDAGraphMode, *args: Any, for_capture: bool = False, **more: Any
    ) -> dict[str, Any]:
        """As vLLM's, but nothing for a step that is a graph with attention of our own."""
        if cudagraph_mode == CUDAGraphMode.FULL and not for_capture and self.model.attends_itself:
            return {}
        prepared: dict[str, Any] = super().prepare_attn(
            input_batch, cudagraph_mode, *args, for_capture=for_capture, **more
        )
        return prepared


class TokenSampler:
    """Takes tokens for what they are: `VoxgateTalker.compute_logits` returns them, int64 [n, 1], in place of logits."""

    penalties_state = SimpleNamespace(output_bin_counts=None)

    def __init__(self, req_states: Any) -> None:
        self._requests = req_states
        self._one = torch.ones(req_states.max_num_reqs, dtype=torch.int32, device=req_states.device)
        self._none = torch.zeros_like(self._one)

    def add_request(self, *_: Any) -> None:
        """Sampling options are the gateway's, in the slot's tables."""

    def apply_staged_writes(self) -> None:
        """There are none."""

    def __call__(self, tokens: Tensor, input_batch: Any) -> SamplerOutput:
        if isinstance(input_batch.logits_indices, slice):
            # A step of frames alone (`gpu_inputs.py`): one token of each.
            count = input_batch.num_reqs
            return SamplerOutput(tokens.clone(), None, None, self._one[:count], self._none[:count])
        # None of a request whose prompt goes on in the next step.
        made, rejected = get_num_sampled_and_rejected(
            input_batch.seq_lens.new_ones(input_batch.num_reqs),
            input_batch.seq_lens,
            input_batch.cu_num_logits,
            input_batch.idx_mapping,
            self._requests.prefill_len.gpu,
        )
        # They are copied to the host while the next step may already write over them.
        return SamplerOutput(tokens.clone(), None, None, made, rejected)
