"""vLLM's worker on a GPU, with a cache of the size that is really free, and with less work per step.

With this project's kernels, a step has no sampler, no attention metadata that nothing reads, and fast preparation of
inputs.
"""

from __future__ import annotations

import gc
import logging
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from ....cuda.chip import chip_limits
from ....cuda.fast_paths import FastPath, outcomes, record, summary
from ....cuda.kernel_compiler import CompilationLog
from ....cuda.self_test import disabled
from ..compat import (
    CUDAGraphMode,
    DefaultModelState,
    SamplerOutput,
    StepRequest,
    Worker,
    get_num_sampled_and_rejected,
    missing_names,
    run_requests,
)
from ..config import EngineConfig
from ..proven import vllm_version
from ..start_notes import Note, note_step, notes_its_start, write_note

log = logging.getLogger(__name__)

TEST_STEPS = (
    (StepRequest(33, 1), StepRequest(20, 5), StepRequest(0, 18)),
    (StepRequest(33, 1), StepRequest(20, 1), StepRequest(0, 3)),
)
"""The steps of the self-test of the layers: one more position, part of a prompt, and a prompt, over several pages; of
many rows, and of few, which have other products."""


@notes_its_start
class TalkerWorker(Worker):
    """Created by vLLM where its `worker_cls` names it."""

    def init_device(self) -> None:
        """Counts from now on which kernels were compiled ahead."""
        self._compilations = CompilationLog()
        super().init_device()

    def determine_available_memory(self) -> int:
        """Takes the cache from what is free, now that model and codec are loaded."""
        memory = EngineConfig.of(self.vllm_config).memory
        assert memory is not None
        gc.collect()
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info()
        self.cache_config.kv_cache_memory_bytes = memory.cache_from(free)
        available: int = super().determine_available_memory()
        return available

    def compile_or_warm_up_model(self) -> Any:
        """Warms up as vLLM does; tests this project's layers before it, and fast input preparation behind it."""
        times = self._warm_up()
        self._note_memory()
        folder = Path(self.vllm_config.model_config.model)
        write_note(folder, Note.FAST_PATHS, summary(outcomes()))
        write_note(folder, Note.KERNELS, str(self._compilations))
        return times

    def _note_memory(self) -> None:
        memory, cache = EngineConfig.of(self.vllm_config).memory, self.cache_config.kv_cache_memory_bytes
        if memory is not None and cache is not None:
            taken = torch.cuda.memory_reserved() - cache
            write_note(Path(self.vllm_config.model_config.model), Note.MEMORY, memory.describe(cache, taken))

    def _run_test_steps(self) -> None:
        for requests in TEST_STEPS:
            run_requests(self, requests)

    def _warm_up(self) -> Any:
        folder = Path(self.vllm_config.model_config.model)
        record(FastPath.EARLY_LAUNCH, FastPath.EARLY_LAUNCH.missing(chip_limits()))
        note_step(folder, "testing the layers")
        self.model_runner.model.test_backbone(self._run_test_steps)
        note_step(folder, "capturing graphs of the layers")
        times = super().compile_or_warm_up_model()
        note_step(folder, "testing the preparation of inputs")
        if isinstance(getattr(self.model_runner, "model_state", None), TalkerModelState):
            try:
                self._install_fast_inputs()
            except Exception:
                # vLLM's own preparation is slower and equally correct.
                disabled(FastPath.INPUTS, "its self-test failed")
                log.exception("self-test of the fast input preparation")
        return times

    def execute_model(self, scheduler_output: Any) -> Any:
        """Announces to the model the step's number and which rows make a first frame, then runs vLLM's step."""
        if (sender := self.model_runner.model.frame_sender) is not None:
            sender.begin_step(getattr(scheduler_output, "step_number", 0))
        if (decoder := self.model_runner.model.first_frame_decoder) is not None:
            decoder.expect(getattr(scheduler_output, "first_frames", ()))
        return super().execute_model(scheduler_output)

    @torch.inference_mode()
    def _install_fast_inputs(self) -> None:
        if missing_names(["fast inputs"]):
            disabled(FastPath.INPUTS, f"vLLM {vllm_version()} prepares inputs differently")
            return
        # These names are optional, so they are imported once they are known to exist.
        from ..compat import warmup_kernels
        from ..fast_inputs import FastInputPreparation

        runner: Any = self.model_runner
        if (reason := FastInputPreparation.unsupported(runner)) is not None:
            disabled(FastPath.INPUTS, reason)
            return
        preparation = FastInputPreparation(runner)
        # vLLM's own warm-up runs a step of prompts, then one of frames.
        warm_up = partial(warmup_kernels, runner, self.execute_model, self.sample_tokens)
        preparation.install()
        try:
            passed = preparation.self_test(warm_up)
        except Exception:
            preparation.uninstall()
            # Requests of the failed warm-up may remain; another one removes them.
            warm_up()
            raise
        if passed:
            record(FastPath.INPUTS, None)
            return
        preparation.uninstall()
        disabled(FastPath.INPUTS, "self-test differs from vLLM")


class TalkerModelState(DefaultModelState):
    """Lets the model sample by itself, and leaves out metadata that its attention does not read."""

    def custom_sampler(self, sampler: Any) -> tuple[Any, Any]:
        """Replaces vLLM's sampler, which would launch six kernels to find the token that it is given."""
        return PassthroughSampler(sampler.req_states), None

    def prepare_attn(
        self, input_batch: Any, cudagraph_mode: CUDAGraphMode, *args: Any, for_capture: bool = False, **more: Any
    ) -> dict[str, Any]:
        """vLLM's metadata; nothing for a step whose graph contains this project's attention."""
        if cudagraph_mode == CUDAGraphMode.FULL and not for_capture and self.model.has_own_attention:
            return {}
        prepared: dict[str, Any] = super().prepare_attn(
            input_batch, cudagraph_mode, *args, for_capture=for_capture, **more
        )
        return prepared


class PassthroughSampler:
    """Returns the tokens that `VoxgateTalker.compute_logits` computed, int64 [n, 1], in place of logits."""

    penalties_state = SimpleNamespace(output_bin_counts=None)

    def __init__(self, req_states: Any) -> None:
        self._requests = req_states
        self._one = torch.ones(req_states.max_num_reqs, dtype=torch.int32, device=req_states.device)
        self._none = torch.zeros_like(self._one)

    def add_request(self, *_: Any) -> None:
        """Ignores a request's sampling options: those in force are in the slot's tables."""

    def apply_staged_writes(self) -> None:
        """Does nothing: there are no staged writes."""

    def __call__(self, tokens: Tensor, input_batch: Any) -> SamplerOutput:
        if isinstance(input_batch.logits_indices, slice):
            # A step of frames alone (`fast_inputs.py`): one token per row.
            count = input_batch.num_reqs
            sampled, rejected = self._one[:count], self._none[:count]
        else:
            # No token for a request whose prompt continues in the next step.
            sampled, rejected = get_num_sampled_and_rejected(
                input_batch.seq_lens.new_ones(input_batch.num_reqs),
                input_batch.seq_lens,
                input_batch.cu_num_logits,
                input_batch.idx_mapping,
                self._requests.prefill_len.gpu,
            )
        return SamplerOutput(
            # A copy: the next step may overwrite the tokens while they are copied to the host.
            sampled_token_ids=tokens.clone(),
            logprobs_tensors=None,
            num_nans=None,
            num_sampled=sampled,
            num_rejected=rejected,
        )
