"""The codec decoder's GPU kernels against `CodecDecoder`: chunks, windows, fused units, the self-test."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from voxgate.codecs.neural.config import DecoderConfig
from voxgate.codecs.neural.cuda import decoder as cuda_decoder
from voxgate.codecs.neural.cuda import tiles
from voxgate.codecs.neural.cuda.decoder import GpuDecoder
from voxgate.codecs.neural.cuda.kernels import output_conv
from voxgate.codecs.neural.cuda.layers import LayerInput, ResidualUnitWeights
from voxgate.codecs.neural.cuda.tiles import ChipLimits, ConvTile, conv_tile
from voxgate.codecs.neural.decoder import CodecDecoder
from voxgate.codecs.neural.weights import random_tensors
from voxgate.pipeline.checkpoint.checkpoint import TalkerCheckpoint
from voxgate.pipeline.codec import gpu_worker
from voxgate.pipeline.codec.gpu_worker import MIN_SNR_DB, load_gpu_decoder, matches_reference, snr_db
from voxgate.pipeline.codec.residual_unit import missing_units

from .test_residual_unit import reference_unit, snake

CONFIG = DecoderConfig(
    codebook_size=32,
    codebook_dim=16,
    num_quantizers=4,
    latent_dim=24,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=2,
    head_dim=8,
    sliding_window=5,
    rope_theta=1e4,
    rms_norm_eps=1e-5,
    decoder_dim=32,
    upsampling_ratios=(2, 2),
    upsample_rates=(2, 3),
)
LONG = replace(CONFIG, sliding_window=20, head_dim=32)
"""Its attention window takes several chunks to fill."""
SHORT = replace(CONFIG, sliding_window=3)
"""Its chunks are longer than its attention window."""
HOPPER = ChipLimits((9, 0), 232_448)
SLOTS = 5


@pytest.mark.parametrize(
    ("config", "chunks"),
    [(CONFIG, (1, 2, 4, 1)), (LONG, (1, 8, 4, 8, 2, 8)), (SHORT, (1, 8, 2, 4, 1))],
    ids=["short", "beyond the window", "chunks beyond the window"],
)
def test_chunks_of_streams_in_any_slot_equal_a_single_pass(
    device: torch.device, config: DecoderConfig, chunks: tuple[int, ...]
) -> None:
    loaded = CodecDecoder(config, random_tensors(config))
    codes = torch.randint(32, (2, sum(chunks), 4), generator=torch.Generator().manual_seed(1))
    decoder = GpuDecoder(loaded, SLOTS, torch.float32, device)
    # The previous stream of the slot must leave no trace.
    decoder.decode(
        codes[:1, :2].to(device), torch.tensor([3], device=device), torch.ones(1, dtype=torch.int64, device=device)
    )
    parts, at = [], 0
    for frames in chunks:
        # The third row is in the padding slot.
        slots = torch.tensor([3, 0, SLOTS], device=device)
        fresh = torch.tensor([at == 0, at == 0, True], device=device).long()
        batch = torch.cat([codes[:, at : at + frames], codes[:1, at : at + frames]]).to(device)
        parts.append(decoder.decode(batch, slots, fresh)[:2].cpu())
        at += frames
    assert torch.allclose(torch.cat(parts, 1), loaded.decode_all(codes), atol=1e-5)


@dataclass(frozen=True)
class TorchUnit:
    """A fused residual unit in PyTorch, which supports batches of two streams or more."""

    unit: ResidualUnitWeights
    next_input: LayerInput

    def supports(self, steps: int, rows: int) -> bool:
        return steps > 0 and rows > 1

    def __call__(self, source: Tensor, residual: Tensor, output: Tensor) -> None:
        residual.copy_(reference_unit(self.unit, source, residual))
        output[self.next_input.reach :] = snake(residual, self.next_input.snake)


def test_fused_units_and_separate_kernels_continue_each_other(device: torch.device) -> None:
    loaded = CodecDecoder(CONFIG, random_tensors(CONFIG))
    codes = torch.randint(32, (2, 4, 4), generator=torch.Generator().manual_seed(1))
    decoder = GpuDecoder(loaded, SLOTS, torch.float32, device, TorchUnit)
    both, fresh = torch.tensor([1, 4], device=device), torch.ones(2, dtype=torch.int64, device=device)
    first = decoder.decode(codes[:, :1].to(device), both, fresh).cpu()
    then = [
        decoder.decode(codes[row : row + 1, 1:].to(device), both[row : row + 1], 0 * fresh[:1]).cpu() for row in (0, 1)
    ]
    assert torch.allclose(torch.cat([first, torch.cat(then)], 1), loaded.decode_all(codes), atol=1e-5)


@pytest.mark.parametrize("tma", [True, False])
def test_convolutions_load_by_tma_where_allowed_and_agree(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, *, tma: bool
) -> None:
    wide = replace(CONFIG, latent_dim=64, decoder_dim=128)
    loaded = CodecDecoder(wide, random_tensors(wide))
    codes = torch.randint(32, (8, 5, 4), generator=torch.Generator().manual_seed(1))
    monkeypatch.setattr(tiles, "LARGE_LINES", 40)
    monkeypatch.setattr(tiles, "MANY_LINES", 150)
    taken: list[ConvTile] = []

    def noted(*sizes: Any, **options: Any) -> ConvTile:
        taken.append(conv_tile(*sizes, **options))
        return taken[-1]

    monkeypatch.setattr(cuda_decoder, "conv_tile", noted)
    decoder = GpuDecoder(loaded, len(codes), torch.float16, device, chip=HOPPER, tma=tma)
    slots, fresh = torch.arange(len(codes), device=device), torch.ones(len(codes), dtype=torch.int64, device=device)
    first = decoder.decode(codes[:, :2].to(device), slots, fresh)
    then = decoder.decode(codes[:, 2:].to(device), slots, 0 * fresh)
    # In each call the convolution to the decoder's width, one with a stride, and both of each unit.
    assert {choice.tile.rows for choice in taken if choice.by_tma} == ({128, 256} if tma else set())
    assert sum(choice.by_tma for choice in taken) >= 8 * tma
    assert min(map(snr_db, loaded.decode_all(codes), torch.cat([first, then], 1).cpu())) > MIN_SNR_DB


def test_deep_convolutions_of_few_lines_load_by_tma_and_agree(device: torch.device) -> None:
    deep = replace(CONFIG, latent_dim=128, decoder_dim=768, upsample_rates=(2,))
    loaded = CodecDecoder(deep, random_tensors(deep))
    codes = torch.randint(32, (1, 3, 4), generator=torch.Generator().manual_seed(1))
    decoder = GpuDecoder(loaded, SLOTS, torch.float16, device, chip=HOPPER)
    # Units of 384 channels, whose slices of 128 are half of those of 768.
    slot, fresh = torch.tensor([2], device=device), torch.ones(1, dtype=torch.int64, device=device)
    parts = [decoder.decode(codes[:, at : at + 1].to(device), slot, (at == 0) * fresh).cpu() for at in range(3)]
    assert snr_db(loaded.decode_all(codes), torch.cat(parts, 1)) > MIN_SNR_DB


def test_kept_state_continues_in_another_slot(device: torch.device) -> None:
    """The places of the attention's keys depend on the number of frames, which is kept with them."""
    loaded = CodecDecoder(LONG, random_tensors(LONG))
    codes = torch.randint(32, (1, 40, 4), generator=torch.Generator().manual_seed(1))
    decoder = GpuDecoder(loaded, SLOTS, torch.float32, device)

    def decode(slot: int, first: int, end: int) -> Tensor:
        slots, fresh = torch.tensor([slot], device=device), torch.tensor([int(first == 0)], device=device)
        return decoder.decode(codes[:, first:end].to(device), slots, fresh).cpu()

    before = decode(1, 0, 27)
    decoder.keep_state(1, 0)
    decode(1, 0, 8)
    decoder.restore_state(3, 0)
    assert torch.allclose(torch.cat([before, decode(3, 27, 40)], 1), loaded.decode_all(codes), atol=1e-5)


@pytest.mark.parametrize(("channels", "steps"), [(96, 500), (24, 122), (200, 123)])
def test_last_convolution_in_several_programs(device: torch.device, channels: int, steps: int) -> None:
    rows, taps, generator = 3, 7, torch.Generator().manual_seed(1)
    source = torch.randn(steps + taps - 1, rows, channels, generator=generator)
    weight = torch.randn(taps, channels, generator=generator) / (3 * channels**0.5)
    pcm = torch.empty(rows, steps, device=device)
    reach = cuda_decoder.OUTPUT_STEPS - taps + 1
    output_conv[(-(-steps // reach), rows)](
        source.to(device), weight.to(device), torch.tensor([0.1], device=device), pcm, steps, rows, INPUTS=channels,
        TAPS=taps, SPAN=max(16, min(128, 1 << (channels - 1).bit_length())), STEPS=cuda_decoder.OUTPUT_STEPS,
        num_stages=1,
    )  # fmt: skip  # one argument list
    expected = sum(source[tap : tap + steps] @ weight[tap] for tap in range(taps)) + 0.1
    assert torch.allclose(pcm.cpu(), expected.T.clamp(-1, 1), atol=1e-5)


def test_self_test_rejects_a_decoder_with_one_wrong_unit(device: torch.device) -> None:
    loaded = CodecDecoder(CONFIG, random_tensors(CONFIG))
    codes = torch.randint(32, (1, 2, 4), generator=torch.Generator().manual_seed(1))
    reference = loaded.decode_all(codes)
    assert matches_reference(GpuDecoder(loaded, SLOTS, torch.float16, device, TorchUnit), codes, reference)
    # Of one output.
    loaded.blocks[-1].units[-1].pointwise.panels[0, :, 0] *= -1
    assert not matches_reference(GpuDecoder(loaded, SLOTS, torch.float16, device, TorchUnit), codes, reference)


def test_branches_beyond_the_range_of_half_precision_are_exact_enough(device: torch.device) -> None:
    """A trained layer adds more than 65504 to one channel, which dominates the norms behind it."""
    tensors = random_tensors(CONFIG)
    tensors["pre_transformer.layers.0.mlp.up_proj.weight"] *= 1000
    down = tensors["pre_transformer.layers.0.mlp.down_proj.weight"]
    down[0] *= 3000
    down[1:] /= 1000
    loaded = CodecDecoder(CONFIG, tensors)
    codes = torch.randint(32, (1, 2, 4), generator=torch.Generator().manual_seed(1))
    decoder = GpuDecoder(loaded, SLOTS, torch.float16, device)
    largest = []
    layer = decoder._layer

    def watched(*inputs: object) -> Tensor:
        branch = layer(*inputs)  # type: ignore[arg-type]  # passed on
        largest.append(branch.abs().max().item())
        return branch

    decoder._layer = watched  # type: ignore[method-assign]  # a probe
    assert matches_reference(decoder, codes, loaded.decode_all(codes))
    assert max(largest) > 65504


@pytest.mark.parametrize(
    ("missing", "passed", "dtype", "fallbacks"),
    [
        (None, [True], torch.float16, []),
        (None, [False, True], torch.float16, [torch.float16]),
        (None, [False, False], torch.float32, [torch.float32]),
        ("no units", [True], torch.float16, []),
        ("no units", [False, True], torch.float16, [torch.float16]),
        ("no units", [False, False], torch.float32, [torch.float32]),
    ],
)
def test_fallback_is_announced_once_when_a_self_test_fails(
    missing: str | None,
    passed: list[bool],
    dtype: torch.dtype,
    fallbacks: list[torch.dtype],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded, verdicts = CodecDecoder(CONFIG, random_tensors(CONFIG)), iter(passed)
    monkeypatch.setattr(CodecDecoder, "from_checkpoint", lambda _: loaded)
    monkeypatch.setattr(gpu_worker, "missing_units", lambda *_: missing)
    monkeypatch.setattr(gpu_worker, "chip_limits", lambda _: HOPPER)
    monkeypatch.setattr(gpu_worker, "unit_launches", dict)
    monkeypatch.setattr(gpu_worker, "matches_reference", lambda *_: next(verdicts))
    chip = SimpleNamespace(multi_processor_count=132, major=9, minor=0, shared_memory_per_block_optin=232_448)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: chip)
    announced: list[torch.dtype] = []
    decoder = load_gpu_decoder(Path("codec"), SLOTS, torch.device("cpu"), announced.append)
    assert (decoder.dtype, announced) == (dtype, fallbacks)
    assert decoder.tma == (passed[0] or dtype is torch.float32), "half precision behind a failure does without TMA"
    assert next(verdicts, None) is None, "every test was needed"


def test_only_codecs_of_fitting_sizes_have_fused_units(checkpoint: TalkerCheckpoint) -> None:
    ada = ChipLimits((8, 9), 101_376)
    published = replace(CONFIG, decoder_dim=1536, upsample_rates=(8, 5, 4, 3))
    demo = DecoderConfig.from_checkpoint(checkpoint.codec_folder)
    assert missing_units(published, HOPPER) is None
    assert missing_units(demo, HOPPER) == "the codec has other sizes"
    assert missing_units(published, ada) == "it runs on compute capability 9.x only, this GPU has 8.9"
