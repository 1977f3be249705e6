"""Step: trains talker and code predictor. `python -m train.talker.train_talker W --seconds 1000`

Reads W/text, W/codes.safetensors, and W/speech while it grows; writes the averaged weights to W/talker.safetensors
every 75 s and at the end. `--start` continues from earlier weights.
"""

from __future__ import annotations

import argparse
import time
from math import inf
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from ..codec.mel_tokenizer import MelTokenizer
from ..optimisation import Interval, TimeBudget, WeightAverage, cosine, growing_decay, warm_up
from ..run_files import TrainingLog, device_named, half_precision, load_weights, save_weights, wait_for
from ..sizes import CODEBOOKS, PHONES_PER_FRAME, voice_shares
from ..speech.synthesis import read_lines
from ..store import ChunkReader, SpeechStore, StoredUtterance, wait_for_voices
from .loss import (
    SPAN,
    TalkerBatch,
    TalkerLoss,
    choose_spans,
    corrupt_history,
    drop_frames,
    make_talker_batch,
    replace_history,
    sample_codes,
)
from .model import TalkerNetwork
from .packing import FIELDS, SENTENCES, PackedBatch, Packer, PackingProcesses, TokenLines, with_single_share
from .text_side import load_talker

_WEIGHT_DECAY = 0.05
_AVERAGE_EVERY = 4
_SAMPLING_TEMPERATURE = 0.7
_HELD_OUT_INTERVAL = 200
"""One in this many lines is held out of training, to measure losses on unseen text."""


def token_variants(tokenizer: Path, lines: list[str], dropouts: tuple[float, ...] = (0.08, 0.15)) -> list[TokenLines]:
    """Tokens of the lines, first regular, then with BPE dropout (Provilkov et al., 2020)."""
    variants = []
    for dropout in (None, *dropouts):
        coder = Tokenizer.from_file(str(tokenizer))
        coder.model.dropout = dropout
        variants.append(TokenLines.of(encoding.ids for encoding in coder.encode_batch(lines)))
    return variants


class TalkerTraining:
    """Updates the model; the history is corrupted and sampled outside the compiled loss."""

    def __init__(self, model: TalkerLoss, device: torch.device, rate: float, spans: int, *, compiled: bool) -> None:
        self.model, self._device, self._spans = model, device, spans
        matrices = [p for name, p in model.named_parameters() if p.dim() == 2 and "embedding" not in name]
        others = [p for name, p in model.named_parameters() if not (p.dim() == 2 and "embedding" not in name)]
        groups = [{"params": matrices, "weight_decay": _WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
        self._optimizer = torch.optim.AdamW(groups, rate, betas=(0.9, 0.98), fused=device.type == "cuda")
        self._loss = torch.compile(model, dynamic=False) if compiled else model
        self._states = torch.compile(model.states, dynamic=False) if compiled else model.states
        self._sample_codes = torch.compile(sample_codes, dynamic=False) if compiled else sample_codes
        self._rate = rate

    def update(self, batch: TalkerBatch, rate: float, sampled_share: float) -> dict[str, Tensor]:
        """Update; returns the losses. `rate`: factor of the learning rate. `sampled_share`: of spans to replace."""
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate * rate
        batch = batch._replace(history=corrupt_history(batch.history))
        if sampled_share > 0:
            batch = self.with_sampled_history(batch, sampled_share)
        batch = batch._replace(fed=drop_frames(batch.fed))
        with half_precision(self._device):
            loss, losses = self._loss(batch)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        losses["gradient"] = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self._optimizer.step()
        return losses

    @torch.no_grad()
    def with_sampled_history(self, batch: TalkerBatch, share: float) -> TalkerBatch:
        """Replace the given share of random spans in the history by frames that the talker samples there."""
        positions, usable = choose_spans(batch.target >= 0, self._spans)
        with half_precision(self._device):
            hidden = self._states(batch).flatten(0, 1)[positions]
            codes = batch.codes.flatten(0, 1)[positions]
            sampled = self._sample_codes(self.model.talker, hidden, codes, _SAMPLING_TEMPERATURE)
        chosen = torch.rand(self._spans, device=self._device) < share
        usable = usable & chosen.repeat_interleave(SPAN)
        return batch._replace(history=replace_history(batch.history, batch.fed, positions, usable, sampled))


def synthetic_batch(device: torch.device, rows: int, length: int, residual_frames: int) -> TalkerBatch:
    """Synthetic documents of the real shapes, for compilation before speech is available."""
    fields = torch.zeros(len(FIELDS), rows, length, dtype=torch.int32, device=device)
    fields[2] = -1
    fields[4] = torch.arange(length, device=device) % 64
    fields[5] = torch.arange(length, device=device) // 64
    codes = torch.zeros(8, CODEBOOKS, dtype=torch.int16, device=device)
    phones = torch.zeros(8, PHONES_PER_FRAME, dtype=torch.uint8, device=device)
    return make_talker_batch(fields, codes, phones, residual_frames)


def train(args: argparse.Namespace) -> None:
    """Run the step with the options of `main`."""
    began = time.monotonic()
    log = TrainingLog(args.work / "logs" / "talker.jsonl")
    lines = read_lines(args.work)
    variants = token_variants(args.work / "text" / "tokenizer.json", lines)
    log.write(lines=len(lines), tokens=len(variants[0].ids))
    shares = args.voice_shares
    # Forked before CUDA is initialised, which a forked process cannot use.
    packers = PackingProcesses(
        variants, args.rows, args.length, args.packers, args.seed, with_single_share(args.single_share), shares
    )

    device = device_named(args.device)
    cuda = device.type == "cuda"
    torch.manual_seed(args.seed)
    talker = TalkerNetwork(dropout=args.dropout)
    if args.start is not None:
        load_talker(talker, load_weights(args.start))
    model = TalkerLoss(talker).to(device)
    average = WeightAverage(model)
    training = TalkerTraining(model, device, args.rate, args.spans, compiled=cuda and not args.eager)
    if cuda:
        initial = {name: value.clone() for name, value in model.state_dict().items()}
        for share in (0.0, 0.0, 1.0, 1.0):
            training.update(synthetic_batch(device, args.rows, args.length, args.residual_frames), 0.0, share)
        model.load_state_dict(initial)
        torch.cuda.synchronize()
        log.write(compiled_s=time.monotonic() - began)

    wait_for(args.work / "codes.safetensors", args.wait_s)
    tokenizer = MelTokenizer().to(device).eval()
    tokenizer.load_state_dict(load_weights(args.work / "codes.safetensors"), strict=False)
    store = SpeechStore(device, args.hours, audio=False, codes=True, shares=shares)
    reader = ChunkReader(args.work / "speech")
    held_out = Packer(variants[:1], args.rows, args.length, args.seed, trailing_silence=(1.0,), shares=shares)
    assert store.codes is not None

    def take(limit: int) -> None:
        fresh: list[StoredUtterance] = []
        for chunk in reader.take(limit):
            fresh += store.add(chunk, tokenizer)
        if fresh:
            packers.add([part for part in fresh if part.line % _HELD_OUT_INTERVAL])
            held_out.add([part for part in fresh if part.line % _HELD_OUT_INTERVAL == 0])

    wait_for_voices(store, take, args.min_frames, args.voice_frames, args.voices_wait_s)
    log.write(hours=store.hours, began_s=time.monotonic() - began)

    clock, look, save, check, update = (
        TimeBudget(args.seconds, args.until),
        Interval(1.0),
        Interval(75.0),
        Interval(30.0),
        0,
    )
    while (share := clock.share) < 1:
        if look() and store.frames < 0.98 * store.capacity:
            take(12)
        sampled_share = min(1.0, max(0.0, (share - args.sampled_from) / (1 - args.sampled_from) * 1.5))
        fields = torch.from_numpy(packers.batch().fields).to(device)
        batch = make_talker_batch(fields, store.codes, store.phones, args.residual_frames)
        losses = training.update(batch, warm_up(update, args.warm_up) * cosine(share, 0.0), sampled_share)
        if update % _AVERAGE_EVERY == 0:
            average.update(growing_decay(update, 0.999, _AVERAGE_EVERY))
        if update % args.log_every == 0:
            log.write(
                update=update,
                seconds=clock.elapsed,
                hours=store.hours,
                own=sampled_share,
                queue=packers.waiting,
                **{name: value.mean() if name == "residual" else value for name, value in losses.items()},
                early=losses["residual"][:2],
            )
        if check() and held_out.ready:
            log.write(
                **_unseen(average.model, held_out.batch(), store, device, args.residual_frames), seconds=clock.elapsed
            )
        if save():
            save_weights(args.work / "talker.safetensors", average.model.talker.state_dict())
        update += 1
    save_weights(args.work / "talker.safetensors", average.model.talker.state_dict())
    log.write(done=update, seconds=clock.elapsed, hours=store.hours)
    reader.close()
    packers.close()


@torch.no_grad()
def _unseen(
    model: TalkerLoss, batch: PackedBatch, store: SpeechStore, device: torch.device, residual_frames: int
) -> dict[str, Tensor]:
    """Losses on held-out text."""
    assert store.codes is not None
    fields = torch.from_numpy(batch.fields).to(device)
    with half_precision(device):
        _, losses = model(make_talker_batch(fields, store.codes, store.phones, residual_frames))
    return {"unseen_" + name: value.mean() for name, value in losses.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--seconds", type=float, default=1000)
    parser.add_argument(
        "--until", type=float, default=inf, help="end at this time at the latest, in seconds since 1970"
    )
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--start", type=Path, help="weights to continue from")
    parser.add_argument("--rows", type=int, default=48)
    parser.add_argument("--length", type=int, default=640, help="positions of a row")
    parser.add_argument(
        "--residual-frames", type=int, default=8192, help="frames per update whose other codes are trained"
    )
    parser.add_argument("--spans", type=int, default=1024, help="spans per update whose history may be sampled")
    parser.add_argument(
        "--sampled-from", type=float, default=0.4, help="share of the time after which it is; below 0: from the start"
    )
    parser.add_argument("--rate", type=float, default=1.2e-3)
    parser.add_argument("--warm-up", type=int, default=400, help="updates until the full learning rate")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--hours", type=float, default=700, help="most hours of speech")
    parser.add_argument("--min-frames", type=int, default=450_000, help="frames of speech to start with")
    parser.add_argument("--voice-frames", type=int, default=30_000, help="of each voice")
    parser.add_argument("--voices-wait-s", type=float, default=60, help="most seconds to wait for each voice")
    parser.add_argument(
        "--voice-shares", type=voice_shares, default="3,1,1,1", help="of documents and stored speech, such as 3,2,2,2"
    )
    parser.add_argument("--single-share", type=float, default=SENTENCES[0], help="share of documents of one sentence")
    parser.add_argument("--packers", type=int, default=6)
    parser.add_argument("--wait-s", type=float, default=600, help="seconds to wait for the tokenizer")
    parser.add_argument("--log-every", type=int, default=200)
    parser.add_argument("--eager", action="store_true", help="do not compile")
    parser.add_argument("--seed", type=int, default=1)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
