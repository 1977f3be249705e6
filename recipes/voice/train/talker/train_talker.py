"""Step: talker and code predictor. `python -m train.talker.train_talker W --seconds 1000`

Reads W/text, W/speech as it grows, and W/codes.safetensors; writes W/talker.safetensors (the averaged weights) every
minute and at the end. `--start` goes on from earlier weights.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from ..codec.mel_tokenizer import MelTokenizer
from ..optimisation import Interval, TimeBudget, WeightAverage, cosine, growing_decay, warm_up
from ..run_files import TrainingLog, device_named, half_precision, load_weights, save_weights, wait_for
from ..sizes import CODEBOOKS, PHONES_PER_FRAME
from ..store import ChunkReader, SpeechStore, StoredUtterance
from .loss import (
    SPAN,
    TalkerBatch,
    TalkerLoss,
    choose_spans,
    disturb,
    drop_frames,
    make_talker_batch,
    own_codes,
    replace_history,
)
from .model import TalkerNetwork
from .packing import FIELDS, SENTENCES, PackedBatch, Packer, PackingProcesses, TokenLines, with_single

_DECAY = 0.05
_AVERAGE_EVERY = 4
_OWN_TEMPERATURE = 0.7
_HELD_OUT = 200
"""One line of so many is kept from training, to see what the talker does with text it never met."""


def read_lines(path: Path) -> list[str]:
    """The sentences of `source<TAB>sentence` lines."""
    return [line.split("\t", 1)[1] for line in path.read_text(encoding="utf-8").splitlines()]


def token_variants(tokenizer: Path, lines: list[str], dropouts: tuple[float, ...] = (0.08, 0.15)) -> list[TokenLines]:
    """Plain tokens, then with merges left out at random: the same words in other pieces."""
    variants = []
    for dropout in (None, *dropouts):
        coder = Tokenizer.from_file(str(tokenizer))
        coder.model.dropout = dropout
        variants.append(TokenLines.of(encoding.ids for encoding in coder.encode_batch(lines)))
    return variants


class TalkerTraining:
    """One update at a time; which history is heard is decided here, outside what is compiled."""

    def __init__(self, model: TalkerLoss, device: torch.device, rate: float, spans: int, *, compiled: bool) -> None:
        self.model, self._device, self._spans = model, device, spans
        matrices = [p for name, p in model.named_parameters() if p.dim() == 2 and "embedding" not in name]
        others = [p for name, p in model.named_parameters() if not (p.dim() == 2 and "embedding" not in name)]
        groups = [{"params": matrices, "weight_decay": _DECAY}, {"params": others, "weight_decay": 0.0}]
        self._optimizer = torch.optim.AdamW(groups, rate, betas=(0.9, 0.98), fused=device.type == "cuda")
        self._loss = torch.compile(model, dynamic=False) if compiled else model
        self._states = torch.compile(model.states, dynamic=False) if compiled else model.states
        self._own_codes = torch.compile(own_codes, dynamic=False) if compiled else own_codes
        self._rate = rate

    def update(self, lesson: TalkerBatch, rate: float, own_share: float) -> dict[str, Tensor]:
        """`rate`: share of the full learning rate. `own_share`: of the chosen spans that are really replaced."""
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate * rate
        lesson = lesson._replace(history=disturb(lesson.history))
        if own_share > 0:
            lesson = self.with_own_history(lesson, own_share)
        lesson = lesson._replace(fed=drop_frames(lesson.fed))
        with half_precision(self._device):
            loss, told = self._loss(lesson)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        told["gradient"] = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self._optimizer.step()
        return told

    @torch.no_grad()
    def with_own_history(self, lesson: TalkerBatch, share: float) -> TalkerBatch:
        positions, usable = choose_spans(lesson.target >= 0, self._spans)
        with half_precision(self._device):
            hidden = self._states(lesson).flatten(0, 1)[positions]
            codes = lesson.codes.flatten(0, 1)[positions]
            said = self._own_codes(self.model.talker, hidden, codes, _OWN_TEMPERATURE)
        taken = torch.rand(self._spans, device=self._device) < share
        usable = usable & taken.repeat_interleave(SPAN)
        return lesson._replace(history=replace_history(lesson.history, lesson.fed, positions, usable, said))


def rehearsal(device: torch.device, rows: int, length: int, picked: int) -> TalkerBatch:
    """Made-up documents of the real shapes, to compile with before there is speech."""
    fields = torch.zeros(len(FIELDS), rows, length, dtype=torch.int32, device=device)
    fields[2] = -1
    fields[4] = torch.arange(length, device=device) % 64
    fields[5] = torch.arange(length, device=device) // 64
    codes = torch.zeros(8, CODEBOOKS, dtype=torch.int16, device=device)
    phones = torch.zeros(8, PHONES_PER_FRAME, dtype=torch.uint8, device=device)
    return make_talker_batch(fields, codes, phones, picked)


def train(args: argparse.Namespace) -> None:
    began = time.monotonic()
    progress = TrainingLog(args.work / "logs" / "talker.jsonl")
    lines = read_lines(args.work / "text" / "train.txt")
    variants = token_variants(args.work / "text" / "tokenizer.json", lines)
    progress.say(lines=len(lines), tokens=len(variants[0].ids))
    # They are forked before the device is touched: a process that has a GPU open does not survive its fork.
    packers = PackingProcesses(variants, args.rows, args.length, args.packers, args.seed, with_single(args.single))

    device = device_named(args.device)
    cuda = device.type == "cuda"
    torch.manual_seed(args.seed)
    talker = TalkerNetwork(dropout=args.dropout)
    if args.start is not None:
        talker.load_state_dict(load_weights(args.start))
    model = TalkerLoss(talker).to(device)
    average = WeightAverage(model)
    training = TalkerTraining(model, device, args.rate, args.spans, compiled=cuda and not args.eager)
    if cuda:
        kept = {name: value.clone() for name, value in model.state_dict().items()}
        for share in (0.0, 0.0, 1.0, 1.0):
            training.update(rehearsal(device, args.rows, args.length, args.picked), 0.0, share)
        model.load_state_dict(kept)
        torch.cuda.synchronize()
        progress.say(compiled_s=time.monotonic() - began)

    wait_for(args.work / "codes.safetensors", args.patience)
    tokenizer = MelTokenizer().to(device).eval()
    tokenizer.load_state_dict(load_weights(args.work / "codes.safetensors"), strict=False)
    store = SpeechStore(device, args.hours, audio=False, codes=True)
    reader = ChunkReader(args.work / "speech")
    held_out = Packer(variants[:1], args.rows, args.length, args.seed, still=(1.0,))
    assert store.codes is not None

    def take(limit: int) -> None:
        fresh: list[StoredUtterance] = []
        for chunk in reader.take(limit):
            fresh += store.add(chunk, tokenizer)
        if fresh:
            packers.add([part for part in fresh if part.line % _HELD_OUT])
            held_out.add([part for part in fresh if part.line % _HELD_OUT == 0])

    while store.frames < args.enough:
        take(12)
        time.sleep(0.05)
    progress.say(hours=store.hours, began_s=time.monotonic() - began)

    clock, look, save, check, update = TimeBudget(args.seconds), Interval(1.0), Interval(75.0), Interval(30.0), 0
    while (share := clock.share) < 1:
        if look() and store.frames < 0.98 * store.capacity:
            take(6)
        own = min(1.0, max(0.0, (share - args.own_from) / (1 - args.own_from) * 1.5))
        fields = torch.from_numpy(packers.batch().fields).to(device)
        lesson = make_talker_batch(fields, store.codes, store.phones, args.picked)
        told = training.update(lesson, warm_up(update, args.warm_up) * cosine(share, 0.0), own)
        if update % _AVERAGE_EVERY == 0:
            average.follow(growing_decay(update, 0.999, _AVERAGE_EVERY))
        if update % args.say_every == 0:
            progress.say(
                update=update,
                seconds=clock.elapsed,
                hours=store.hours,
                own=own,
                queue=packers.waiting,
                **{name: value.mean() if name == "residual" else value for name, value in told.items()},
                early=told["residual"][:2],
            )
        if check() and held_out.ready:
            progress.say(**_unseen(average.model, held_out.batch(), store, device, args.picked), seconds=clock.elapsed)
        if save():
            save_weights(args.work / "talker.safetensors", average.model.talker.state_dict())
        update += 1
    save_weights(args.work / "talker.safetensors", average.model.talker.state_dict())
    progress.say(done=update, seconds=clock.elapsed, hours=store.hours)
    reader.close()
    packers.close()


@torch.no_grad()
def _unseen(
    model: TalkerLoss, batch: PackedBatch, store: SpeechStore, device: torch.device, picked: int
) -> dict[str, Tensor]:
    """The losses on text that is kept from training."""
    assert store.codes is not None
    fields = torch.from_numpy(batch.fields).to(device)
    with half_precision(device):
        _, told = model(make_talker_batch(fields, store.codes, store.phones, picked))
    return {"unseen_" + name: value.mean() for name, value in told.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--seconds", type=float, default=1000)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--start", type=Path, help="weights to go on from")
    parser.add_argument("--rows", type=int, default=48)
    parser.add_argument("--length", type=int, default=640, help="positions of a row")
    parser.add_argument("--picked", type=int, default=8192, help="frames of an update whose other codes are learnt")
    parser.add_argument("--spans", type=int, default=1024, help="spans of an update that may hear the talker itself")
    parser.add_argument(
        "--own-from", type=float, default=0.4, help="share of the time after which they do; below 0: at once"
    )
    parser.add_argument("--rate", type=float, default=1.2e-3)
    parser.add_argument("--warm-up", type=int, default=400, help="updates until the rate is full")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--hours", type=float, default=700, help="of speech at most")
    parser.add_argument("--enough", type=int, default=450_000, help="frames to begin with")
    parser.add_argument("--single", type=float, default=SENTENCES[0], help="share of documents of one sentence")
    parser.add_argument("--packers", type=int, default=6)
    parser.add_argument("--patience", type=float, default=600, help="seconds to wait for the codes")
    parser.add_argument("--say-every", type=int, default=200)
    parser.add_argument("--eager", action="store_true", help="compile nothing")
    parser.add_argument("--seed", type=int, default=1)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
