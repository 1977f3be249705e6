"""vLLM's worker on a GPU, with what it prepares for each step made shorter."""
# TODO-DOC What vLLM's runner leaves to a model: how it samples, and what it prepares for attention before a step.

from __future__ import annotations

import logging
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from vllm.config.compilation import CUDAGraphMode
from vllm.v1.worker.gpu.input_batch import get_num_sampled_and_rejected
from vllm.v1.worker.gpu.model_states.default import DefaultModelState
from vllm.v1.worker.gpu.sample.output import SamplerOutput
from vllm.v1.worker.gpu_worker import Worker

log = logging.getLogger(__name__)


class TalkerWorker(Worker):
    """vLLM makes it where its configuration says so (`worker_cls`)."""

    def compile_or_warm_up_model(self) -> Any:
        """As vLLM's; then steps of frames alone are prepared by ours, where that does as vLLM's does."""
        times = super().compile_or_warm_up_model()
        if isinstance(getattr(self.model_runner, "model_state", None), TalkerModelState):
            try:
                self._install_fast_inputs()
            except Exception:
                # Another vLLM than those it knows; its own way is slower, and as good.
                log.warning("steps are prepared by vLLM itself", exc_info=True)
        return times

    def execute_model(self, scheduler_output: Any) -> Any:
        """As vLLM's; the model is told whose first frame this step makes."""
        if (sounds := self.model_runner.model.first_frame_decoder) is not None:
            sounds.expect(getattr(scheduler_output, "first_frames", ()))
        return super().execute_model(scheduler_output)

    @torch.inference_mode()
    def _install_fast_inputs(self) -> None:
        from vllm.v1.worker.gpu.warmup import warmup_kernels

        from .fast_inputs import FastInputPreparation

        runner: Any = self.model_runner
        if not FastInputPreparation.supports(runner):
            return
        lean = FastInputPreparation(runner)
        # vLLM's own rehearsal: a step of prompts, then one of frames.
        rehearse = partial(warmup_kernels, runner, self.execute_model, self.sample_tokens)
        lean.install()
        try:
            proved = lean.self_test(rehearse)
        except Exception:
            lean.uninstall()
            # Its requests may still be there; they go with another.
            rehearse()
            raise
        if not proved:
            log.warning("steps are prepared by vLLM itself: ours came out otherwise")
            lean.uninstall()


class TalkerModelState(DefaultModelState):
    """The model draws its tokens itself, and its graphs need nothing that vLLM prepares for its own attention."""

    def custom_sampler(self, sampler: Any) -> tuple[Any, Any]:
        """vLLM's own would launch half a dozen kernels to find the token that it is given."""
        return PassthroughSampler(sampler.req_states), None

    def prepare_attn(
        self, input_batch: Any, cudagraph_mode: CUDAGraphMode, *args: Any, for_capture: bool = False, **more: Any
    ) -> dict[str, Any]:
        """As vLLM's, but nothing for a step that is a graph with attention of our own."""
        if cudagraph_mode == CUDAGraphMode.FULL and not for_capture and self.model.has_own_attention:
            return {}
        prepared: dict[str, Any] = super().prepare_attn(
            input_batch, cudagraph_mode, *args, for_capture=for_capture, **more
        )
        return prepared


class PassthroughSampler:
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
