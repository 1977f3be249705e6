"""The talker as a vLLM model.

vLLM's token id is the slot of a generation, so (slot, position) reaches every step in any batch order, through chunked
prefill, preemption and recomputation, without a request id or a hook into a runner. One step of vLLM's runs through
this model in five stages:

1. `forward` embeds each position from the slot tables and from the codes of the frames made so far;
2. the backbone computes hidden states, with vLLM's layers or those of `talker/cuda`;
3. `forward` appends slot and position to them as byte-valued channels (`reference/row_tags.py`), which are exact in any
   dtype, because the runner then picks and reorders the rows that need a next token;
4. `compute_logits` reads slot and position, samples codebook 0, runs the code predictor, stores the frame for the next
   step's embedding, and sends its record;
5. it returns one-hot logits: the slot again, or end of speech. With this project's GPU kernels it returns the token id
   itself, and vLLM's sampler is replaced (`worker.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...checkpoint.checkpoint import load_checkpoint
from ...cuda.chip import chip_limits
from ...cuda.fast_paths import FastPath, record
from ...cuda.self_test import disabled
from ...ipc.codec_wire import CodecWorkerOptions
from ...ipc.process_death import exit_with_owner
from ...ipc.records import HEADER
from ...ipc.slot_tables import SlotTables
from ..reference.embedding import FrameHistory, InputEmbedding
from ..reference.predictor import Predictor
from ..reference.row_tags import append_row_tags, split_row_tags
from ..reference.sampling import Sampler, TorchSampler
from ..reference.slot_reader import HostTables, SlotReader, TableViews
from ..reference.step import FrameStep
from .compat import Qwen3Model, is_cpu, maybe_prefix
from .compile_ahead import compile_fallback
from .config import EngineConfig
from .start_notes import Note, note_step, write_note

if TYPE_CHECKING:
    from ...codec.gpu_worker import GpuBatchDecoder
    from ..cuda.first_frame import FirstFrameDecoder
    from ..cuda.frame_sender import FrameSender
    from .backbone import BackboneAdapter

_BACKBONE_WEIGHTS = ("talker.model.layers.", "talker.model.norm.")

Embed = Callable[[Tensor, Tensor], Tensor]
"""Embeds token ids, int [n], at positions, int64 [n]: [n, hidden]."""
Step = Callable[[Tensor], Tensor]
"""From hidden states with row tags, [n, hidden + TAG_CHANNELS], to what `compute_logits` returns."""
MakeFrames = Callable[[Tensor], tuple[Tensor, Tensor]]
"""As `Step`, without effects on the host: also returns the records, int32 [n, HEADER + groups]."""


class VoxgateTalker(nn.Module):
    """Backbone from vLLM; embedding, heads, sampling and code predictor from this project."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__()
        config = EngineConfig.of(vllm_config)
        exit_with_owner(config.owner_pid)
        if is_cpu():
            from ..cpu import vllm_ops  # noqa: F401  # importing it replaces vLLM's layers
        self.model = Qwen3Model(vllm_config=vllm_config, prefix=maybe_prefix(prefix, "model"))
        self.make_empty_intermediate_tensors = self.model.make_empty_intermediate_tensors
        self._config = config
        self._folder = Path(vllm_config.model_config.model)
        self._note_step = partial(note_step, self._folder)
        self._checkpoint = load_checkpoint(Path(config.checkpoint))
        self._device = torch.device(vllm_config.device_config.device)
        self._dtype: torch.dtype = vllm_config.model_config.dtype
        self._hidden = self._checkpoint.talker.hidden
        self._page: int = vllm_config.cache_config.block_size
        self._max_rows: int = vllm_config.scheduler_config.max_num_seqs
        self._tables: SlotReader | None = None
        self._embed: Embed | None = None
        self._step: Step | None = None
        self._backbone: BackboneAdapter | None = None
        self.frame_sender: FrameSender | None = None
        """Sends the frames of each step, on a GPU."""
        self.first_frame_decoder: FirstFrameDecoder | None = None
        """Decodes first frames in the step that makes them, where the codec runs in this process."""

    def get_model_state_cls(self) -> Any:
        """The model state for vLLM's runner on a GPU."""
        if self._config.options.voxgate_kernels:
            from .workers.gpu import TalkerModelState as ModelState
        else:
            from .compat import DefaultModelState as ModelState
        return ModelState

    @property
    def has_own_attention(self) -> bool:
        """Whether the graphs of steps contain no attention of vLLM's."""
        return self._backbone is not None

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Takes the published tensors (`docs/qwen3_tts.md`, section 11.1); returns the names of filled parameters."""
        own: dict[str, Tensor] = {}

        def backbone_weights() -> Iterable[tuple[str, Tensor]]:
            for name, tensor in weights:
                if name.startswith(_BACKBONE_WEIGHTS):
                    yield name.removeprefix("talker.model."), tensor
                elif name.startswith("talker."):
                    own[name] = tensor.to(self._device, self._dtype)

        loaded = self.model.load_weights(backbone_weights())
        if self._config.options.voxgate_kernels:
            self._adapt_backbone()
        self._assemble(own)
        # The backbone's input embedding stays unused: positions are embedded here.
        return {f"model.{name}" for name in loaded} | {"model.embed_tokens.weight"}

    def _adapt_backbone(self) -> None:
        from ..cuda.attention import CacheFormat, attention_for
        from .backbone import BackboneAdapter, rope_angles

        if (reason := BackboneAdapter.unsupported(self.model)) is not None:
            disabled(FastPath.LAYERS, reason)
            return
        cache = CacheFormat(self._page, torch.float8_e4m3fn if self._config.options.gpu.fp8_cache else self._dtype)
        size, angles = self._checkpoint.talker, rope_angles(self.model)
        attention = attention_for(size, angles, cache, chip_limits())
        if attention is None:
            disabled(FastPath.LAYERS, f"no attention of this project reads a cache in {cache.dtype}")
            return
        self._backbone = BackboneAdapter(self.model, size, max(self._config.graph_sizes), attention, cache)

    @torch.inference_mode()
    def test_backbone(self, steps: Callable[[], object]) -> None:
        """Leaves every step to vLLM's layers unless this project's equal them in the steps that `steps` runs."""
        if self._backbone is None:
            return
        try:
            reason = self._backbone.self_test(steps)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # vLLM may have changed in any way; its own layers are slower and equally correct
            reason = f"its self-test failed: {error!r}"
        if reason is None:
            record(FastPath.LAYERS, None)
            return
        self._backbone = None
        disabled(FastPath.LAYERS, reason)

    def _assemble(self, weights: dict[str, Tensor]) -> None:
        """Builds everything around the backbone from the talker's other weights."""
        checkpoint, shape, on_cpu = self._checkpoint, self._config.shape, self._device.type == "cpu"
        tables = self._config.attach_tables()
        views = TableViews.of(tables)
        reader: SlotReader = HostTables(views)
        sampler: Sampler = TorchSampler()
        if not on_cpu:
            from ..cuda.mapped_tables import MappedTables, map_tables
            from ..cuda.sampling import TritonSampler

            map_tables(tables)
            reader, sampler = MappedTables(views), TritonSampler()
        self._tables = reader
        codec = self._start_codec()
        self._note_step("preparing the code predictor")
        with torch.inference_mode():
            history = FrameHistory.zeros(shape, checkpoint.codebook, self._device)
            embedding = InputEmbedding(weights, checkpoint, reader, history)
            predictor = self._build_predictor(weights)
            step = FrameStep(
                weights["talker.codec_head.weight"],
                predictor,
                checkpoint,
                shape,
                reader,
                history,
                self._config.connect_reports().send,
                sampler=sampler,
                isolate_failures=on_cpu,
            )
            if on_cpu:
                self._embed, self._step = self._eager(embedding, step)
            else:
                voxgate = self._config.options.voxgate_kernels
                self._embed, make = (
                    self._fused(embedding, step, predictor, views) if voxgate else self._unfused(embedding, step)
                )
                if codec is not None and voxgate:
                    from ..cuda.first_frame import FirstFrameDecoder

                    self._note_step("capturing graphs of first frames")
                    self.first_frame_decoder = FirstFrameDecoder(codec, self._max_rows, checkpoint.groups)
                    codec.beginnings.expected_s = tables.expected_s
                self._note_step("capturing graphs of steps")
                self._step = self._graphed(make, tables)

    def _start_codec(self) -> GpuBatchDecoder | None:
        """Starts the codec's thread, if the codec runs in this process."""
        options = self._config.options.codec
        if options is None:
            return None
        from ...codec.worker import serve_in_process

        self._note_step("loading the codec")
        return serve_in_process(CodecWorkerOptions.from_json(options), self._note_step, self._compile_codec)

    def _compile_codec(self, dtype: torch.dtype) -> None:
        """Compiles the kernels of the codec in `dtype`, whose fast paths have failed their self-tests."""
        self._note_step("compiling kernels of the codec")
        if (line := compile_fallback(self._config, dtype)) is not None:
            write_note(self._folder, Note.FALLBACK_KERNELS, line)

    def _build_predictor(self, weights: dict[str, Tensor]) -> Predictor:
        first_embedding = weights["talker.model.codec_embedding.weight"]
        size, groups = self._checkpoint.predictor, self._checkpoint.groups
        if self._device.type == "cpu":
            # Numba comes with vLLM's CPU build and takes half a second to import.
            from ..cpu.predictor import CpuCodePredictor

            return CpuCodePredictor(weights, first_embedding, size, groups, self._max_rows)
        from ..cuda.predictor.predictor import GpuCodePredictor

        persistent = self._config.options.gpu.persistent_predictor
        return GpuCodePredictor(weights, first_embedding, size, groups, self._max_rows, persistent_predictor=persistent)

    def _eager(self, embedding: InputEmbedding, step: FrameStep) -> tuple[Embed, Step]:
        """On a CPU: operation by operation, and records are sent by the step itself."""
        slots = self._config.shape.rows

        def embed(ids: Tensor, positions: Tensor) -> Tensor:
            # vLLM's warm-up passes ids that no generation has.
            return embedding(ids.long().clamp(0, slots - 1), positions)

        def run(states: Tensor) -> Tensor:
            hidden, owners, positions = split_row_tags(states)
            return _one_hot(step(hidden, owners.clamp(0, slots - 1), positions), slots)

        return embed, run

    def _unfused(self, embedding: InputEmbedding, step: FrameStep) -> tuple[Embed, MakeFrames]:
        """On a GPU with vLLM's and torch's kernels."""
        # Ids of vLLM's warm-up, and of steps begun before speech ended, go to the padding row behind the slots.
        slots = self._config.shape.rows

        def make(states: Tensor) -> tuple[Tensor, Tensor]:
            hidden, owners, positions = split_row_tags(states)
            tokens, records = step.make(hidden, owners.clamp(0, slots), positions)
            return _one_hot(tokens, slots), records

        return lambda ids, positions: embedding(ids.long().clamp(0, slots), positions), make

    def _fused(
        self, embedding: InputEmbedding, step: FrameStep, predictor: Predictor, views: TableViews
    ) -> tuple[Embed, MakeFrames]:
        """On a GPU with this project's kernels."""
        from ..cuda.frame_step import GpuFrameStep, GpuInputEmbedding, TableSnapshot

        slots = self._config.shape.rows
        snapshot = TableSnapshot.of(slots, self._device)
        gpu_step = GpuFrameStep(step, predictor, self._checkpoint, snapshot, slots)
        return GpuInputEmbedding(embedding, views, snapshot), gpu_step.make

    def _graphed(self, make: MakeFrames, tables: SlotTables) -> Step:
        """Captures `make` as CUDA graphs, whose records a thread sends."""
        from ..cuda.frame_sender import FrameSender
        from ..cuda.frame_step import GraphedStep

        slots = torch.full((1,), self._config.shape.rows, device=self._device)
        hidden = torch.zeros(1, self._hidden, dtype=self._dtype, device=self._device)
        padding_row = append_row_tags(hidden, slots, torch.zeros_like(slots))
        width = HEADER + self._checkpoint.groups
        send = self._config.connect_reports().send
        sender = FrameSender(self._max_rows, width, send, self.first_frame_decoder, tables.completed)
        self.frame_sender = sender
        graphs = GraphedStep(make, padding_row, self._max_rows, sender.put)
        graphs.capture()
        return graphs

    def embed_input_ids(self, input_ids: Tensor, *_: Any, **__: Any) -> Tensor:
        """Required by vLLM's interface; zeros, because embedding needs positions and `forward` does it."""
        return torch.zeros(len(input_ids), self._hidden, dtype=self._dtype, device=input_ids.device)

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        intermediate_tensors: Any = None,  # noqa: ARG002  # vLLM's signature
        inputs_embeds: Tensor | None = None,  # noqa: ARG002  # vLLM's signature
    ) -> Tensor:
        """Hidden states after the final norm with row tags, [n, hidden + TAG_CHANNELS]."""
        assert self._embed is not None, "forward before load_weights"
        positions = positions.long()
        if self._config.shape.prefilled_prompts:
            assert self._tables is not None, "forward before load_weights"
            input_ids = self._tables.successor_ids(input_ids)
        embedded = self._embed(input_ids, positions)
        if self._backbone is not None and (states := self._backbone(input_ids, positions, embedded)) is not None:
            return states
        hidden = self.model(input_ids, positions, None, inputs_embeds=embedded)
        return append_row_tags(hidden, input_ids.long(), positions)

    def compute_logits(self, hidden_states: Tensor) -> Tensor:
        """One-hot logits, float32 [n, slots + 1]: the row's own slot, or the last id where its speech ended.

        With this project's GPU kernels the id itself, int64 [n, 1].
        """
        assert self._step is not None, "compute_logits before load_weights"
        return self._step(hidden_states)


def _one_hot(tokens: Tensor, slots: int) -> Tensor:
    """Logits of which vLLM's greedy sampler picks `tokens`, int64 [n]: float32 [n, slots + 1]."""
    logits = torch.zeros(len(tokens), slots + 1, dtype=torch.float32, device=tokens.device)
    return logits.scatter_(1, tokens[:, None], 1.0)
