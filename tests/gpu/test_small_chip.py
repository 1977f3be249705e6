"""With the limits of a smaller chip (99 KB, no early launch, no CUDA C++) a GPU computes the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor
from voxgate.benchmarks import random_checkpoint as published
from voxgate.codecs.neural.config import DecoderConfig
from voxgate.codecs.neural.cuda.decoder import GpuDecoder
from voxgate.codecs.neural.cuda.tiles import ChipLimits
from voxgate.codecs.neural.decoder import CodecDecoder
from voxgate.codecs.neural.weights import random_tensors
from voxgate.pipeline.checkpoint.checkpoint import TransformerSize
from voxgate.pipeline.codec.gpu_worker import matches_reference
from voxgate.pipeline.cuda.chip import LIMITS_VARIABLE, chip_limits
from voxgate.pipeline.talker.cuda.backbone import GpuBackbone
from voxgate.pipeline.talker.cuda.backbone_kernels import BatchRows, LayerWeights
from voxgate.pipeline.talker.cuda.predictor.predictor import GpuCodePredictor
from voxgate.pipeline.talker.reference.sampling import Candidates

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")

ROOT = Path(__file__).parents[2]
ADA = ChipLimits((8, 9), 101_376)
ADA_LIMITS = "8.9:101376"
DEVICE = torch.device("cuda")
ROWS = (1, 2, 8, 12, 16, 17, 32, 48, 64, 128, 160)
ROUNDING = 0.1
"""Largest difference of logits, whose standard deviation is 1, by another order of sums in bfloat16."""
SAME_ROWS = 0.75
"""Least share of rows with the same codes. Of random weights, the candidates are so close that rounding alone, of the
sums or of the draw, gives a row other codes from then on."""
SEED = 5


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16) * shape[-1] ** -0.5


def predictor(chip: ChipLimits, groups: int = published.GROUPS) -> GpuCodePredictor:
    torch.manual_seed(SEED)
    width, inner, layers, _ = published.PREDICTOR.values()
    size = TransformerSize(width, inner, layers, published.HEADS, published.KV_HEADS, published.HEAD_DIM, 1e-6, 1e6)
    names = ("talker.code_predictor.", "talker.model.codec_embedding.")
    weights = {
        name: random(*shape) if len(shape) > 1 else torch.ones(shape, device=DEVICE, dtype=torch.bfloat16)
        for name, shape in published.talker_shapes("0.6B")
        if name.startswith(names)
    }
    first = weights["talker.model.codec_embedding.weight"]
    # The persistent predictor, which only one of the chips has, is compared with these kernels in a test of its own.
    return GpuCodePredictor(weights, first, size, groups, max(ROWS), chip=chip, persistent_predictor=False)


@torch.inference_mode()
def test_code_predictor_computes_the_same() -> None:
    chips = (chip_limits(), ADA)
    whole, one_code = [predictor(chip) for chip in chips], [predictor(chip, groups=2) for chip in chips]
    same, drawn = 0, 0
    for rows in ROWS:
        torch.manual_seed(rows)
        hidden = torch.randn(rows, published.WIDTHS["0.6B"][0], device=DEVICE, dtype=torch.bfloat16)
        first = torch.randint(published.CODEBOOK, (rows,), device=DEVICE)
        noise = torch.rand(rows, published.GROUPS - 1, device=DEVICE)
        options = (torch.full((rows,), value, device=DEVICE) for value in (0.9, 50, 1.0))
        candidates = Candidates.on_device(*options, published.CODEBOOK)
        logits = [each._codes_and_logits(hidden, first, candidates, noise[:, :1])[1] for each in one_code]
        assert torch.allclose(*logits, rtol=0, atol=ROUNDING), f"{rows} rows"
        one, other = (each(hidden, first, candidates, noise) for each in whole)
        same += int((one == other).all(dim=1).sum())
        drawn += rows
    assert same >= SAME_ROWS * drawn, f"{same} of {drawn} rows"


@pytest.mark.parametrize("name", published.WIDTHS)
@torch.inference_mode()
def test_layers_compute_the_same_states_and_cache(name: str) -> None:
    torch.manual_seed(SEED)
    hidden, inner = published.WIDTHS[name]
    queries, keys = published.HEADS * published.HEAD_DIM, published.KV_HEADS * published.HEAD_DIM
    size = TransformerSize(hidden, inner, 2, published.HEADS, published.KV_HEADS, published.HEAD_DIM, 1e-6, 1e6)
    ones = torch.ones(published.HEAD_DIM, device=DEVICE, dtype=torch.bfloat16)
    matrices = ((queries + 2 * keys, hidden), (hidden, queries), (2 * inner, hidden), (hidden, inner))
    layers = [LayerWeights(*(random(*shape) for shape in matrices), ones, ones) for _ in range(2)]
    angles, norm = torch.rand(128, published.HEAD_DIM, device=DEVICE), random(hidden)
    page, pages, past = 16, 5, 70
    for rows in ROWS:
        table = torch.arange(rows * pages, device=DEVICE, dtype=torch.int32).view(rows, pages)
        positions = torch.full((rows,), past, device=DEVICE)
        places = table[:, past // page].long() * page + past % page
        starts = torch.arange(rows + 1, device=DEVICE, dtype=torch.int32)
        batch = BatchRows(positions, positions, places, table, starts)
        embedded = random(rows, hidden)
        caches = [random(rows * pages, published.KV_HEADS, page, 2 * published.HEAD_DIM) for _ in layers]
        results = []
        for chip in (chip_limits(), ADA):
            own = [cache.clone() for cache in caches]
            states = GpuBackbone(layers, norm, angles, size, max(ROWS), chip=chip)(embedded, batch, own)
            results.append([states, *own])
        assert all(torch.equal(one, other) for one, other in zip(*results, strict=True)), f"{rows} rows"


def test_codec_decodes_the_same_samples() -> None:
    config = DecoderConfig.from_document(
        {"decoder_config": published.CODEC, "output_sample_rate": 24_000, "decode_upsample_rate": 1920}
    )
    loaded = CodecDecoder(config, random_tensors(config))
    decoders = [GpuDecoder(loaded, 4, torch.float16, DEVICE, chip=chip) for chip in (chip_limits(), ADA)]
    for rows, frames in ((1, 1), (8, 4), (64, 1)):
        codes = torch.randint(published.CODEBOOK, (rows, frames, published.GROUPS), device=DEVICE)
        padding, fresh = torch.full((rows,), 4, device=DEVICE), torch.ones(rows, dtype=torch.int64, device=DEVICE)
        pcm = [decoder.decode(codes, padding, fresh) for decoder in decoders]
        assert torch.equal(*pcm)
    codes = torch.randint(published.CODEBOOK, (1, 8, published.GROUPS))
    in_float32 = GpuDecoder(loaded, 8, torch.float32, DEVICE, chip=ADA)
    assert matches_reference(in_float32, codes, loaded.decode_all(codes))


def engine_codes(limits: str | None) -> tuple[object, str]:
    """Codes of an engine in bfloat16, and its log."""
    environment = {name: value for name, value in os.environ.items() if name != LIMITS_VARIABLE}
    result = subprocess.run(
        [sys.executable, "-m", "tests.gpu.engine_codes"],
        cwd=ROOT,
        env=environment | ({LIMITS_VARIABLE: limits} if limits else {}),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(result.stdout.splitlines()[-1]), result.stderr


@pytest.mark.engine
def test_engine_gives_the_same_codes_and_names_what_is_missing() -> None:
    codes, log = engine_codes(None)
    limited, limited_log = engine_codes(ADA_LIMITS)
    (line,) = [line for line in log.splitlines() if "GPU fast paths in use" in line]
    (limited_line,) = [line for line in limited_log.splitlines() if "GPU fast paths in use" in line]
    print(line, limited_line, sep="\n")
    used, _, unused = line.partition("; not in use: ")
    # The persistent predictor, which the demo voice is too small for, adds in another order.
    assert limited == codes or "persistent predictor" in used
    assert "own layers" in used
    assert "fast input preparation" in used
    used, _, unused = limited_line.partition("; not in use: ")
    assert "own layers" in used
    assert "early launch of kernels (it needs compute capability 9.0, this GPU has 8.9)" in unused
    assert "CUDA code draw (it needs compute capability 9.0, this GPU has 8.9)" in unused
