"""Error of overlap decoding by left context: `python -m voxgate.benchmarks.overlap_error CHECKPOINT [CODES]`.

CODES is an .npz file of int arrays [T, 16], one per utterance; without it the codes are random.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from voxgate.codecs.neural.decoder import CodecDecoder
from voxgate.codecs.neural.streaming import OverlapDecoder

LEFT_CONTEXTS = (0, 10, 16, 25, 48, 72, 104, 120)


def overlap_snr_db(decoder: CodecDecoder, utterances: Sequence[Tensor], left_context: int, chunk_frames: int) -> float:
    """Signal-to-error ratio, in dB, of chunked overlap decoding over all `utterances` (int64 [T, 16] each).

    The signal is the output of decoding each utterance in a single pass. Float32 rounding alone gives 110 to 130 dB.
    """
    overlap = OverlapDecoder(decoder, 1, left_context)
    slot = torch.zeros(1, dtype=torch.int64)
    signal = error = 0.0
    for codes in utterances:
        whole = decoder.decode_all(codes.unsqueeze(0))
        runs: list[Tensor] = []
        for chunk in codes.unsqueeze(0).split(chunk_frames, dim=1):  # type: ignore[no-untyped-call]  # untyped in torch
            fresh = torch.tensor([not runs], dtype=torch.int64)
            runs.append(overlap.decode(chunk, slot, fresh))
        signal += float(whole.double().square().sum())
        error += float((torch.cat(runs, dim=1) - whole).double().square().sum())
    return float(10 * np.log10(signal / error)) if error else float("inf")


def snr_table(
    decoder: CodecDecoder,
    utterances: Sequence[Tensor],
    left_contexts: Iterable[int],
    chunk_sizes: Sequence[int],
) -> str:
    """A Markdown table with one row per left context and one column per chunk size."""
    head = "".join(f" chunks of {frames} |" for frames in chunk_sizes)
    lines = [f"| left context |{head}", "|---|" + "---|" * len(chunk_sizes)]
    for left_context in left_contexts:
        cells = (overlap_snr_db(decoder, utterances, left_context, frames) for frames in chunk_sizes)
        lines.append(f"| {left_context} |" + "".join(f" {cell:.1f} dB |" for cell in cells))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m voxgate.benchmarks.overlap_error", description=__doc__)
    parser.add_argument("checkpoint", type=Path, help="the speech_tokenizer folder of a checkpoint")
    parser.add_argument("codes", type=Path, nargs="?", help="an .npz file of int arrays [T, 16]")
    parser.add_argument("--left-contexts", type=int, nargs="+", default=LEFT_CONTEXTS)
    parser.add_argument("--chunks", type=int, nargs="+", default=(1, 4, 8))
    options = parser.parse_args()
    torch.set_num_threads(1)
    decoder = CodecDecoder.from_checkpoint(options.checkpoint)
    if options.codes:
        utterances = [torch.from_numpy(codes.astype(np.int64)) for codes in np.load(options.codes).values()]
    else:
        generator = torch.Generator().manual_seed(0)
        utterances = [torch.randint(0, decoder.codebook_size, (100, decoder.codebooks), generator=generator)]
    print(snr_table(decoder, utterances, options.left_contexts, options.chunks))


if __name__ == "__main__":
    main()
