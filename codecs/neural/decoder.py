"""The codec decoder: codes to audio, over a whole utterance or chunk by chunk with the same result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from .config import DecoderConfig
from .cpu.panels import Array
from .decoder_shapes import RESIDUAL_DILATIONS
from .layers import CausalConv, ConvNext, OutputConv, ResidualUnit, Snake, VocoderBlock, upsampling
from .stream_state import ChunkHistory, HistoryLayout, StreamState, select_steps
from .transformer import RotaryAngles, WindowedLayer
from .weights import load_tensors


class CodecDecoder:
    """The Qwen3-TTS 12 Hz decoder on a CPU: one frame of 16 codes to 1920 samples at 24 kHz.

    Defined in docs/qwen3_tts.md, sections 8.2 and 11.3. It is causal without look-ahead: the audio of a frame is final
    once the frame is known. A `StreamState` holds all that later frames need of earlier ones, so a decode in chunks
    equals a single pass up to rounding, in any chunking and any batch.
    """

    def __init__(
        self, config: DecoderConfig, tensors: Mapping[str, Tensor], dtype: torch.dtype = torch.float32, threads: int = 1
    ) -> None:
        """`tensors`: by their names without `decoder.`. Scales and adjacent linear maps are folded into one another.

        `threads`: among which the streams of a batch are divided; a stream is decoded by one.
        """
        self.config = config
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "codec") if threads > 1 else None
        self.dtype = dtype
        self.codebooks, self.codebook_size = config.num_quantizers, config.codebook_size
        self.frame_samples = config.frame_samples
        fold = _WeightFolding(config, tensors, dtype)
        self.table, self.table_offsets = fold.codebooks()
        self.input = fold.input_conv()
        self.layers = fold.transformer()
        self.upsampling = fold.upsampling()
        self.widening = fold.conv("decoder.0.conv")
        self.blocks = fold.blocks()
        last = len(config.block_widths)
        self.output = OutputConv(fold.snake(f"decoder.{last}"), *fold.pair(f"decoder.{last + 1}.conv"), fold.layout)
        self.history_width = fold.layout.width

    @classmethod
    def from_checkpoint(
        cls, checkpoint_dir: Path, dtype: torch.dtype = torch.float32, threads: int = 1
    ) -> CodecDecoder:
        """Loads the `speech_tokenizer` folder of a checkpoint. Raises CodecFormatError."""
        config = DecoderConfig.from_checkpoint(checkpoint_dir)
        return cls(config, load_tensors(checkpoint_dir, config), dtype, threads)

    def initial_state(self, rows: int) -> StreamState:
        """Returns the state of `rows` new streams."""
        return StreamState(
            torch.zeros(rows, self.history_width, dtype=self.dtype), torch.zeros(rows, dtype=torch.int64)
        )

    def decode_all(self, codes: Tensor) -> Tensor:
        """Decodes whole utterances in a single pass: int64 [B, T, 16] -> float [B, T * 1920] in [-1, 1]."""
        pcm, _ = self.decode(codes, self.initial_state(len(codes)))
        return pcm

    @torch.inference_mode()
    def decode(self, codes: Tensor, state: StreamState) -> tuple[Tensor, StreamState]:
        """Decodes the next n frames of B streams, each at its own position.

        `codes`: int64 [B, n, 16] in [0, codebook_size), n >= 1. Returns float [B, n * 1920] in [-1, 1] and the state
        after the chunk; `state` is not changed. Raises ValueError for codes outside the codebooks.
        """
        after = state.copy()
        pcm = self.decode_slots(codes, after, torch.arange(state.rows))
        return pcm, after

    @torch.inference_mode()
    def decode_slots(self, codes: Tensor, slab: StreamState, slots: Tensor) -> Tensor:
        """As `decode`, of the streams in the rows `slots` of `slab`, int64 [B], whose state it replaces.

        `slots` are distinct if their states matter. When it raises, no state has changed.
        """
        self._check(codes)
        return self._by_groups(len(codes), lambda rows: self._decode_group(codes[rows], slab, slots[rows]))

    @torch.inference_mode()
    def decode_windows(self, codes: Tensor, context: Tensor, frames: int) -> Tensor:
        """Decodes B windows from zero state; see `streaming.WindowDecoder.decode_windows`. Raises ValueError."""
        self._check(codes)
        return self._by_groups(len(codes), lambda rows: self._decode_window_group(codes[rows], context[rows], frames))

    def _by_groups(self, rows: int, decode: Callable[[Tensor], Tensor]) -> Tensor:
        """Calls `decode` with the numbers of some rows, int64, in each thread; returns its results for all rows."""
        every_row = torch.arange(rows)
        if self._pool is None or rows == 1:
            return decode(every_row)
        return torch.cat(list(self._pool.map(decode, every_row.tensor_split(min(self._threads, rows)))))

    def _check(self, codes: Tensor) -> None:
        lowest, highest = codes.aminmax()
        if lowest < 0 or highest >= self.config.codebook_size:  # they would select entries of another codebook
            raise ValueError(f"codes must lie in [0, {self.config.codebook_size})")

    @torch.inference_mode()
    def _decode_group(self, codes: Tensor, slab: StreamState, slots: Tensor) -> Tensor:
        history = ChunkHistory.over(slab, slots)
        pcm = self._vocode(self._hidden(codes, history), history)
        slab.frames.index_copy_(0, slots, torch.from_numpy(history.frames + codes.shape[1]))
        return pcm

    @torch.inference_mode()
    def _decode_window_group(self, codes: Tensor, context: Tensor, frames: int) -> Tensor:
        rows, steps, _ = codes.shape
        history = ChunkHistory.over(self.initial_state(rows), torch.arange(rows))
        hidden = torch.from_numpy(self._hidden(codes, history)).view(steps, rows, -1).transpose(0, 1)
        # The vocoder depends on fewer frames than the transformer, and costs far more.
        kept = context.clamp(max=self.config.vocoder_left_context)
        hidden = select_steps(hidden, context - kept, min(int(kept.max()) + frames, steps))
        pcm = self._vocode(hidden.transpose(0, 1).flatten(0, 1).contiguous().numpy(), history)
        size = self.frame_samples
        return select_steps(pcm.unsqueeze(2), kept * size, frames * size).squeeze(2)

    def _hidden(self, codes: Tensor, history: ChunkHistory) -> Array:
        """Maps codes [B, n, 16] to [n * B, hidden], after the transformer's last norm."""
        from .cpu.transformer import norm_in_place

        steps, codebooks = codes.shape[1:]
        entries = (codes.transpose(0, 1) + self.table_offsets).reshape(-1, codebooks)
        x = self.input(embedding_bag(entries, self.table, mode="sum").numpy(), history)
        angles = RotaryAngles.of(self.config, steps, torch.from_numpy(history.frames), self.dtype)
        for layer in self.layers:
            layer(x, angles, history)
        norm_in_place(x, self.config.rms_norm_eps)
        return x

    def _vocode(self, x: Array, history: ChunkHistory) -> Tensor:
        """Maps hidden states [n * B, hidden] to audio [B, n * 1920]."""
        for upsample, refine in self.upsampling:
            x = upsample(x, history)
            refine(x, history)
        x = self.widening(x, history)
        for block in self.blocks:
            x = block(x, history)
        return torch.from_numpy(self.output(x, history))


class _WeightFolding:
    """Builds the layers in the order in which they run, with everything folded into weights that can be."""

    def __init__(self, config: DecoderConfig, tensors: Mapping[str, Tensor], dtype: torch.dtype) -> None:
        self.config, self.tensors, self.dtype = config, tensors, dtype
        self.layout = HistoryLayout()

    def exact(self, name: str) -> Tensor:
        """Returns a tensor as float64, so that folding does not round twice."""
        return self.tensors[name].double()

    def pair(self, name: str) -> tuple[Tensor, Tensor]:
        return self.tensors[f"{name}.weight"].to(self.dtype), self.tensors[f"{name}.bias"].to(self.dtype)

    def conv(self, name: str, dilation: int = 1, snake: Snake | None = None) -> CausalConv:
        return CausalConv(*self.pair(name), self.layout, dilation, snake=snake)

    def snake(self, name: str) -> Snake:
        alpha, beta = (self.exact(f"{name}.{x}") for x in ("alpha", "beta"))
        frequency, gain = alpha.exp(), (beta.exp() + 1e-9).reciprocal()
        return Snake(frequency.to(self.dtype), gain.to(self.dtype))

    def codebooks(self) -> tuple[Tensor, Tensor]:
        """Returns all codebooks, projected, in one table, and their offsets; a frame sums one entry of each."""
        tables = []
        for stack, layers in (("first", 1), ("rest", self.config.num_quantizers - 1)):
            project = self.exact(f"quantizer.rvq_{stack}.output_proj.weight")[:, :, 0]
            for layer in range(layers):
                book = f"quantizer.rvq_{stack}.vq.layers.{layer}._codebook"
                usage = self.exact(f"{book}.cluster_usage").clamp(min=1e-5)
                table = self.exact(f"{book}.embedding_sum") / usage.unsqueeze(1)
                tables.append((table @ project.t()).to(self.dtype))
        offsets = torch.arange(len(tables)) * self.config.codebook_size
        return torch.cat(tables), offsets

    def input_conv(self) -> CausalConv:
        """Returns pre_conv and the transformer's input projection as one convolution."""
        project = self.exact("pre_transformer.input_proj.weight")
        weight = torch.einsum("hl,lck->hck", project, self.exact("pre_conv.conv.weight"))
        bias = project @ self.exact("pre_conv.conv.bias") + self.exact("pre_transformer.input_proj.bias")
        return CausalConv(weight.to(self.dtype), bias.to(self.dtype), self.layout)

    def transformer(self) -> list[WindowedLayer]:
        layers = []
        for index in range(self.config.num_hidden_layers):
            prefix = f"pre_transformer.layers.{index}."
            names = [name for name in self.tensors if name.startswith(prefix)]
            tensors = {name.removeprefix(prefix): self.exact(name) for name in names}
            layers.append(WindowedLayer(self.config, tensors, self.layout, self.dtype))
        return layers

    def upsampling(self) -> list[tuple[CausalConv, ConvNext]]:
        """Returns the two stages before the vocoder; the first includes the transformer's output projection."""
        stages = []
        for stage, ratio in enumerate(self.config.upsampling_ratios):
            weight, bias = (self.exact(f"upsample.{stage}.0.conv.{x}") for x in ("weight", "bias"))
            if stage == 0:
                weight, bias = self._after_projection(weight, bias)
            upsample = upsampling(weight.to(self.dtype), bias.to(self.dtype), ratio, self.layout)
            stages.append((upsample, self._conv_next(f"upsample.{stage}.1")))
        return stages

    def _after_projection(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Folds the output projection in: exact, because taps do not overlap and every output depends on one input."""
        norm = self.exact("pre_transformer.norm.weight")
        project = self.exact("pre_transformer.output_proj.weight") * norm
        constant = self.exact("pre_transformer.output_proj.bias")
        through = torch.einsum("lok,l->ok", weight, constant)
        return torch.einsum("lok,lh->hok", weight, project), bias + through.t()

    def _conv_next(self, name: str) -> ConvNext:
        gain, shift = self.exact(f"{name}.norm.weight"), self.exact(f"{name}.norm.bias")
        widen, widen_bias = (self.exact(f"{name}.pwconv1.{x}") for x in ("weight", "bias"))
        narrow, narrow_bias = (self.exact(f"{name}.pwconv2.{x}") for x in ("weight", "bias"))
        gamma = self.exact(f"{name}.gamma")
        depthwise, bias = self.pair(f"{name}.dwconv.conv")
        return ConvNext(
            depthwise[:, 0],
            bias,
            ((widen * gain).to(self.dtype), (widen_bias + widen @ shift).to(self.dtype)),
            ((gamma.unsqueeze(1) * narrow).to(self.dtype), (gamma * narrow_bias).to(self.dtype)),
            self.layout,
        )

    def blocks(self) -> list[VocoderBlock]:
        blocks = []
        for index, rate in enumerate(self.config.upsample_rates):
            name = f"decoder.{index + 1}.block"
            upsample = upsampling(*self.pair(f"{name}.1.conv"), rate, self.layout, self.snake(f"{name}.0"))
            units = [self._unit(f"{name}.{2 + unit}", dilation) for unit, dilation in enumerate(RESIDUAL_DILATIONS)]
            blocks.append(VocoderBlock(upsample, units))
        return blocks

    def _unit(self, name: str, dilation: int) -> ResidualUnit:
        pointwise, bias = self.pair(f"{name}.conv2.conv")
        conv = self.conv(f"{name}.conv1.conv", dilation, self.snake(f"{name}.act1"))
        return ResidualUnit(conv, self.snake(f"{name}.act2"), pointwise[:, :, 0], bias)
