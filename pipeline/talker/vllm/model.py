"""The talker as a vLLM model.

vLLM's token id is the slot of a generation, so (slot, position) reaches every step in any batch order, through chunked
prefill, preemption and recompute, without a request id or a hook into a runner. `forward` appends both to the hidden
states as byte-valued channels, which are exact in any dtype; the runner picks the rows that need a next token, and
`compute_logits` reads there whose they are, samples codebook 0, runs the code predictor, stores the frame for the next
step's embedding, reports it, and answers with one-hot logits: the slot again, or end of speech. With a GPU's
own kernels it answers with the token itself, and vLLM's sampler is left out (`gpu_model_state.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from vllm.model_executor.models.qwen3 import Qwen3Model
from vllm.model_executor.models.utils import maybe_prefix
from vllm.platforms import current_platform

from ...checkpoint import load_checkpoint
from ...ipc.codec_wire import CodecWorkerOptions
from ...ipc.process_death import exit_with_owner
from ...ipc.records import HEADER
from ...ipc.slot_tables import SlotTables
from ..reference.embedding import InputEmbedding
from ..reference.predictor import Predictor
from ..reference.row_tags import append_row_tags, split_row_tags
from ..reference.sampling import Sampler, TorchSampler
from ..reference.slot_reader import HostTables, SlotReader, TableViews
from ..reference.step import FrameStep
from .config import EngineConfig

if TYPE_CHECKING:
    from ...codec.gpu_worker import GpuBatchDecoder
    from ..cuda.first_frame import FirstFrameDecoder
    from ..cuda.frame_step import GraphedStep
    from .backbone import BackboneAdapter

_BACKBONE = ("talker.model.layers.", "talker.model.norm.")


class VoxgateTalker(nn.Module):
    """Backbone from vLLM; embedding, heads, sampling and code predictor from this package."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__()
        wiring = EngineConfig.of(vllm_config)
        exit_with_owner(wiring.owner_pid)
        if current_platform.is_cpu():
            from ..cpu import vllm_ops  # noqa: F401  # importing it replaces vLLM's layers
        self.model = Qwen3Model(vllm_config=vllm_config, prefix=maybe_prefix(prefix, "model"))
        self.make_empty_intermediate_tensors = self.model.make_empty_intermediate_tensors
        self._wiring = wiring
        self._checkpoint = load_checkpoint(Path(wiring.checkpoint))
        self._device = torch.device(vllm_config.device_config.device)
        self._dtype: torch.dtype = vllm_config.model_config.dtype
        self._hidden = self._checkpoint.talker.hidden
        self._max_rows: int = vllm_config.scheduler_config.max_num_seqs
        self._step: Callable[[Tensor], Tensor] | None = None
        self._embed: Callable[[Tensor, Tensor], Tensor] | None = None
        self._backbone: BackboneAdapter | None = None
        self._tables: SlotReader | None = None
        self.first_frame_decoder: FirstFrameDecoder | None = None
        """What decodes first frames where they are made, if they are."""

    def get_model_state_cls(self) -> Any:
        """For vLLM's runner on a GPU."""
        from vllm.v1.worker.gpu.model_states.default import DefaultModelState

        from .worker import TalkerModelState

        return TalkerModelState if self._wiring.options.voxgate_kernels else DefaultModelState

    @property
    def has_own_attention(self) -> bool:
        """Whether no graph of a step has vLLM's attention in it."""
        return self._backbone is not None

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
        if self._wiring.options.voxgate_kernels:
            self._take_over(max(self._wiring.graph_sizes))
        self._assemble(own)
        # The backbone's own input embedding is never looked at: positions are embedded here.
        return {f"model.{name}" for name in loaded} | {"model.embed_tokens.weight"}

    def _take_over(self, max_rows: int) -> None:
        from .backbone import BackboneAdapter

        if BackboneAdapter.supports(self.model):
            self._backbone = BackboneAdapter(
                self.model, self._checkpoint.talker, max_rows, streamed_layers=self._wiring.options.gpu.streamed_layers
            )

    def _assemble(self, weights: dict[str, Tensor]) -> None:
        checkpoint, wiring = self._checkpoint, self._wiring
        tables = wiring.attach_tables()
        views = TableViews.of(tables)
        on_cpu = self._device.type == "cpu"
        reader: SlotReader = HostTables(views)
        sampler: Sampler = TorchSampler()
        if not on_cpu:
            reader, sampler = _gpu_parts(tables, views)
        self._tables = reader
        codec: GpuBatchDecoder | None = None
        if wiring.options.codec is not None:
            from ...codec.worker import serve_in_process

            codec = serve_in_process(CodecWorkerOptions.from_json(wiring.options.codec))
        with torch.inference_mode():
            shape = wiring.shape
            codes = torch.zeros(shape.rows + 1, shape.frames, shape.groups, dtype=torch.int32, device=self._device)
            embedding = InputEmbedding(weights, checkpoint, reader, codes)
            predictor = _predictor_for(self._device, wiring)(
                weights,
                weights["talker.model.codec_embedding.weight"],
                checkpoint.predictor,
                checkpoint.groups,
                self._max_rows,
            )
            head = weights["talker.codec_head.weight"]
            step = FrameStep(
                head,
                predictor,
                checkpoint,
                shape,
                reader,
                codes,
                wiring.connect_reports().send,
                sampler=sampler,
                isolate_failures=on_cpu,
            )
            if on_cpu:
                self._embed, self._step = self._known(embedding), self._eager(step)
            else:
                self._embed, self._step = self._on_gpu(embedding, step, predictor, codec, views)

    def _known(self, embedding: InputEmbedding) -> Callable[[Tensor, Tensor], Tensor]:
        # vLLM's warm-up passes ids that no generation ever has.
        last = self._wiring.shape.rows - 1
        return lambda ids, positions: embedding(ids.long().clamp(0, last), positions)

    def _eager(self, step: FrameStep) -> Callable[[Tensor], Tensor]:
        slots = self._wiring.shape.rows

        def run(states: Tensor) -> Tensor:
            hidden, owners, positions = split_row_tags(states)
            tokens = step(hidden, owners.clamp(0, slots - 1), positions)
            logits = states.new_zeros(len(tokens), slots + 1, dtype=torch.float32)
            return logits.scatter_(1, tokens[:, None], 1.0)

        return run

    def _on_gpu(
        self,
        embedding: InputEmbedding,
        step: FrameStep,
        predictor: Predictor,
        codec: GpuBatchDecoder | None,
        views: TableViews,
    ) -> tuple[Callable[[Tensor, Tensor], Tensor], GraphedStep]:
        from ..cuda.first_frame import FirstFrameDecoder
        from ..cuda.frame_sender import FrameSender
        from ..cuda.frame_step import GraphedStep

        slots = self._wiring.shape.rows
        padding_slot = torch.full((1,), slots, device=self._device)
        padding_row = append_row_tags(
            torch.zeros(1, self._hidden, dtype=self._dtype, device=self._device), padding_slot, 0 * padding_slot
        )
        embed, make = (
            self._own(embedding, step, predictor, views)
            if self._wiring.options.voxgate_kernels
            else self._plain(embedding, step)
        )
        if codec is not None and self._wiring.options.voxgate_kernels:
            self.first_frame_decoder = FirstFrameDecoder(codec, self._max_rows, self._checkpoint.groups)
        width = HEADER + self._checkpoint.groups
        sender = FrameSender(self._max_rows, width, self._wiring.connect_reports().send, self.first_frame_decoder)
        graphs = GraphedStep(make, padding_row, self._max_rows, sender.put)
        graphs.capture()
        return embed, graphs

    def _own(
        self, embedding: InputEmbedding, step: FrameStep, predictor: Predictor, views: TableViews
    ) -> tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor], tuple[Tensor, Tensor]]]:
        from ..cuda.frame_step import GpuFrameStep, GpuInputEmbedding, TableSnapshot

        slots = self._wiring.shape.rows
        snapshot = TableSnapshot.of(slots, self._device)
        gpu_step = GpuFrameStep(step, predictor, self._checkpoint, snapshot, slots)
        return GpuInputEmbedding(embedding, views, snapshot), gpu_step.make

    def _plain(
        self, embedding: InputEmbedding, step: FrameStep
    ) -> tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor], tuple[Tensor, Tensor]]]:
        # The row behind the slots is nobody's: there go ids of vLLM's warm-up, and steps begun before speech ended.
        slots = self._wiring.shape.rows

        def make(states: Tensor) -> tuple[Tensor, Tensor]:
            hidden, owners, positions = split_row_tags(states)
            tokens, records = step.make(hidden, owners.clamp(0, slots), positions)
            logits = torch.zeros(len(tokens), slots + 1, dtype=torch.float32, device=tokens.device)
            return logits.scatter_(1, tokens[:, None], 1.0), records

        return lambda ids, positions: embedding(ids.long().clamp(0, slots), positions), make

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
        """Hidden states after the final norm with whose they are behind them, as of `append_row_tags`."""
        assert self._embed is not None, "weights are loaded before the first step"
        positions = positions.long()
        if self._wiring.shape.prefilled_prompts:
            assert self._tables is not None, "weights are loaded before the first step"
            input_ids = self._tables.successor_ids(input_ids)
        embedded = self._embed(input_ids, positions)
        if self._backbone is not None and (made := self._backbone(input_ids, positions, embedded)) is not None:
            return made
        hidden = self.model(input_ids, positions, None, inputs_embeds=embedded)
        return append_row_tags(hidden, input_ids.long(), positions)

    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        """One-hot logits, float32 [n, slots + 1]: the row's own slot, or the last id where its speech ended.

        With a GPU's own kernels that id itself, int64 [n, 1].
        """
        assert self._step is not None, "weights are loaded before the first step"
        return self._step(hidden_states)


def _gpu_parts(tables: SlotTables, views: TableViews) -> tuple[SlotReader, Sampler]:
    from ..cuda.mapped_tables import MappedTables, map_tables
    from ..cuda.sampling import TritonSampler

    map_tables(tables)
    return MappedTables(views), TritonSampler()


def _predictor_for(device: torch.device, wiring: EngineConfig) -> Callable[..., Predictor]:
    if device.type != "cpu":
        from ..cuda.predictor import GpuCodePredictor

        return partial(GpuCodePredictor, persistent_predictor=wiring.options.gpu.persistent_predictor)
    # Its compiler comes with vLLM's CPU build and takes half a second to import.
    from ..cpu.predictor import CpuCodePredictor

    return CpuCodePredictor
