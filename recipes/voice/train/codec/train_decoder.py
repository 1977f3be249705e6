"""Step: trains the codec decoder. `python -m train.codec.train_decoder W --seconds 540`

Reads W/speech and W/codes.safetensors; writes the averaged weights to W/decoder.safetensors and the discriminators to
W/discriminators.safetensors every minute and at the end. Trains with spectral losses first, later with discriminators
too. `--start` and `--start-discriminators` continue from earlier weights.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from math import inf
from pathlib import Path

import torch
from torch import Tensor

from ..optimisation import Interval, TimeBudget, WeightAverage, growing_decay
from ..run_files import TrainingLog, device_named, load_weights, save_weights, wait_for
from ..sizes import voice_shares
from ..store import ChunkReader, SpeechStore, wait_for_voices
from .decoder import CodecDecoderNetwork
from .decoder_training import DecoderTraining, GraphedSteps
from .discriminators import Discriminators
from .kernel_times import write_kernel_times
from .mel_tokenizer import MelTokenizer

_AVERAGE_EVERY = 4
_FROM_START = 4
"""One window in four begins with a sentence, because the decoder starts without history in use."""


def start_from_tokenizer(decoder: CodecDecoderNetwork, tokenizer: MelTokenizer) -> None:
    """Initialise the decoder's codebooks and projections with the tokenizer's; training refines them."""
    quantizer, books = decoder.quantizer, tokenizer.codebooks.entries
    with torch.no_grad():
        for part, entries, projection in (
            (quantizer.rvq_first, books[:1], tokenizer.out_first),
            (quantizer.rvq_rest, books[1:], tokenizer.out_rest),
        ):
            for level, entry in zip(part.vq.layers, entries, strict=True):
                level._codebook.embedding_sum.copy_(entry)
            part.output_proj.weight.copy_(projection.weight[..., None])


def train(args: argparse.Namespace) -> None:
    """Run the step with the options of `main`."""
    began = time.monotonic()
    log = TrainingLog(args.work / "logs" / "decoder.jsonl")
    device = device_named(args.device)
    cuda = device.type == "cuda"
    torch.manual_seed(args.seed)
    decoder = CodecDecoderNetwork().to(device)
    training = DecoderTraining(decoder, Discriminators(), device, args.part_frames)
    from_start = args.windows // _FROM_START
    step: Callable[..., dict[str, Tensor]] = partial(training.step, from_start=from_start)
    if args.start is not None:
        decoder.load_state_dict(load_weights(args.start))
    if args.start_discriminators is not None:
        try:
            training.discriminators.load_state_dict(load_weights(args.start_discriminators))
        except RuntimeError as error:  # they learn again within minutes; a restart would cost as much
            print(f"{args.start_discriminators} has discriminators of another form: {error}"[:300], flush=True)
    if cuda and not args.eager:
        torch.backends.cudnn.benchmark = True  # all shapes are constant
        training.compile()
        if not args.no_graph:
            step = GraphedSteps(training, args.windows, args.frames, from_start)
        log.write(ready_s=time.monotonic() - began)

    wait_for(args.work / "codes.safetensors", args.wait_s)
    tokenizer = MelTokenizer().to(device).eval()
    tokenizer.load_state_dict(load_weights(args.work / "codes.safetensors"), strict=False)
    if args.start is None:
        start_from_tokenizer(decoder, tokenizer)
    average = WeightAverage(decoder)
    store = SpeechStore(device, args.hours, audio=True, codes=True, shares=args.voice_shares)
    reader = ChunkReader(args.work / "speech")
    assert store.codes is not None
    take = partial(_take, reader, store, tokenizer)
    wait_for_voices(store, take, args.min_frames, args.voice_frames, args.voices_wait_s)
    log.write(hours=store.hours, began_s=time.monotonic() - began)

    clock, look, save, update = TimeBudget(args.seconds, args.until), Interval(2.0), Interval(60.0), 0
    while (share := clock.share) < 1:
        if look() and store.frames < 0.98 * store.capacity:
            take(12)
        audio, covered = store.windows(args.windows, args.frames, from_start)
        codes = store.codes[covered].long().transpose(1, 2).contiguous()
        adversarial = share > args.discriminators_from
        training.set_rates(share, update, adversarial=adversarial)
        losses = step(codes, audio, adversarial=adversarial)
        if update % _AVERAGE_EVERY == 0:
            average.update(growing_decay(update, 0.999, _AVERAGE_EVERY))
        if update % args.log_every == 0:
            log.write(update=update, seconds=clock.elapsed, hours=store.hours, **losses)
            if not losses["spectral"].isfinite():
                raise ArithmeticError(f"the loss is {float(losses['spectral'])}; the weights saved last remain valid")
        if save():
            _save(args.work, average.model, training)
        update += 1
    _save(args.work, average.model, training)
    log.write(done=update, seconds=clock.elapsed, hours=store.hours)
    reader.close()
    if args.kernel_times:
        audio, covered = store.windows(args.windows, args.frames, from_start)
        codes = store.codes[covered].long().transpose(1, 2).contiguous()
        again = partial(step, codes, audio, adversarial=True)
        write_kernel_times(args.work / "logs" / "decoder_kernels.txt", again, device)


def _save(work: Path, average: CodecDecoderNetwork, training: DecoderTraining) -> None:
    save_weights(work / "decoder.safetensors", average.state_dict())
    save_weights(work / "discriminators.safetensors", training.discriminators.state_dict())


def _take(reader: ChunkReader, store: SpeechStore, tokenizer: MelTokenizer, limit: int) -> None:
    benchmark = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False  # it would benchmark again for every length
    for chunk in reader.take(limit):
        store.add(chunk, tokenizer)
    torch.backends.cudnn.benchmark = benchmark


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument(
        "--until", type=float, default=inf, help="end at this time at the latest, in seconds since 1970"
    )
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--start", type=Path, help="weights to continue from")
    parser.add_argument("--start-discriminators", type=Path, help="discriminators to continue with")
    parser.add_argument("--windows", type=int, default=16)
    parser.add_argument("--frames", type=int, default=24, help="frames of each window")
    parser.add_argument("--part-frames", type=int, default=6, help="frames of each window that the losses see")
    parser.add_argument(
        "--discriminators-from", type=float, default=0.07, help="share of the time after which they are used"
    )
    parser.add_argument("--hours", type=float, default=45, help="hours of speech kept on the device")
    parser.add_argument("--min-frames", type=int, default=225_000, help="frames of speech to start with")
    parser.add_argument("--voice-frames", type=int, default=30_000, help="of each voice")
    parser.add_argument(
        "--voice-shares", type=voice_shares, default="1,1,1,1", help="of windows and stored speech, such as 3,2,2,2"
    )
    parser.add_argument("--voices-wait-s", type=float, default=60, help="most seconds to wait for each voice")
    parser.add_argument("--wait-s", type=float, default=600, help="seconds to wait for the tokenizer")
    parser.add_argument("--log-every", type=int, default=200)
    parser.add_argument("--kernel-times", action="store_true", help="at the end, write W/logs/decoder_kernels.txt")
    parser.add_argument("--no-graph", action="store_true", help="do not use CUDA graphs")
    parser.add_argument("--eager", action="store_true", help="use neither graphs nor compilation")
    parser.add_argument("--seed", type=int, default=1)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
