"""vLLM's worker on a GPU, with what it prepares for each step made shorter."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import torch
from vllm.v1.worker.gpu_worker import Worker

from .gpu_model_state import TalkerModelState

log = logging.getLogger(__name__)


class TalkerWorker(Worker):
    """vLLM makes it where its configuration says so (`worker_cls`)."""

    def compile_or_warm_up_model(self) -> Any:
        """As vLLM's; then steps of frames alone are prepared by ours, where that does as vLLM's does."""
        times = super().compile_or_warm_up_model()
        if isinstance(getattr(self.model_runner, "model_state", None), TalkerModelState):
            try:
                self._prepare_less()
            except Exception:
                # Another vLLM than those it knows; its own way is slower, and as good.
                log.warning("steps are prepared by vLLM itself", exc_info=True)
        return times

    def execute_model(self, scheduler_output: Any) -> Any:
        """As vLLM's; the model is told whose first frame this step makes."""
        if (sounds := self.model_runner.model.first_sounds) is not None:
            sounds.expect(getattr(scheduler_output, "first_frames", ()))
        return super().execute_model(scheduler_output)

    @torch.inference_mode()
    def _prepare_less(self) -> None:
        from vllm.v1.worker.gpu.warmup import warmup_kernels

        from .gpu_inputs import LeanInputs

        runner: Any = self.model_runner
        if not LeanInputs.can_take(runner):
            return
        lean = LeanInputs(runner)
        # vLLM's own rehearsal: a step of prompts, then one of frames.
        rehearse = partial(warmup_kernels, runner, self.execute_model, self.sample_tokens)
        lean.take_over()
        try:
            proved = lean.prove(rehearse)
        except Exception:
            lean.give_back()
            # Its requests may still be there; they go with another.
            rehearse()
            raise
        if not proved:
            log.warning("steps are prepared by vLLM itself: ours came out otherwise")
            lean.give_back()
