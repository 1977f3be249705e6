"""Step: the codec decoder, from codes to audio. `python -m train.train_decoder W --seconds 540`

Reads W/speech and W/codes.safetensors; writes W/decoder.safetensors (the averaged weights) every minute and at the
end. First it learns spectra alone, then judges join in. `--start` goes on from earlier weights.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .averaging import WeightAverage, growing_decay
from .chunks import ChunkReader
from .codec_decoder import CodecDecoder
from .discriminators import Judges, judges_loss, maker_loss
from .files import Progress, device_named, half_precision, load_weights, save_weights, wait_for
from .mel_tokenizer import MelTokenizer
from .schedule import Clock, Every, flat_then_linear, warm_up
from .sizes import CODEBOOKS, FRAME_SAMPLES
from .spectral_loss import spectral_loss
from .store import SpeechStore

_RATE, _RATE_JUDGED, _JUDGES_RATE = 8e-4, 4e-4, 3e-4
_SPECTRAL_WEIGHT = 15.0
_AVERAGE_EVERY = 4
_ALL_LEVELS = 0.75
"""Share of windows that hear all sixteen codes; the rest hear four to fifteen, for the early ones to suffice."""


def start_from_tokenizer(decoder: CodecDecoder, tokenizer: MelTokenizer) -> None:
    """The decoder's codebooks and projections begin as the tokenizer's; what the codes mean is theirs to refine."""
    quantizer, books = decoder.quantizer, tokenizer.codebooks.entries
    with torch.no_grad():
        for part, entries, projection in (
            (quantizer.rvq_first, books[:1], tokenizer.out_first),
            (quantizer.rvq_rest, books[1:], tokenizer.out_rest),
        ):
            for level, entry in zip(part.vq.layers, entries, strict=True):
                level._codebook.embedding_sum.copy_(entry)
            part.output_proj.weight.copy_(projection.weight[..., None])


class DecoderTraining:
    """One update at a time, with or without the judges."""

    def __init__(
        self, decoder: CodecDecoder, judges: Judges, device: torch.device, shown: int, *, compiled: bool
    ) -> None:
        cuda = device.type == "cuda"
        self.decoder, self._device, self._shown = decoder, device, shown
        self.judges = judges.to(device, memory_format=torch.channels_last)
        self._learnt = [p for p in decoder.parameters() if p.requires_grad]
        self._optimizer = torch.optim.AdamW(self._learnt, _RATE, betas=(0.8, 0.98), weight_decay=1e-3, fused=cuda)
        self._judges_optimizer = torch.optim.AdamW(
            self.judges.parameters(), _JUDGES_RATE, betas=(0.8, 0.98), fused=cuda
        )

        def build(function: Any) -> Any:
            return torch.compile(function, dynamic=False) if compiled else function

        self._decode, self._spectral = build(decoder), build(spectral_loss)
        self._judge, self._please = build(judges_loss), build(maker_loss)

    def update(self, codes: Tensor, audio: Tensor, share: float, update: int, *, judged: bool) -> dict[str, Tensor]:
        """codes: int64 [batch, 16, T]. audio: float [batch, T * 1920]. share: of the time that is gone."""
        rate = _RATE * warm_up(update, 200) * flat_then_linear(share, 0.4, 0.03)
        for group in self._optimizer.param_groups:
            group["lr"] = min(rate, _RATE_JUDGED) if judged else rate
        batch = codes.shape[0]
        some = torch.randint(4, CODEBOOKS, (batch,), device=self._device)
        kept = torch.where(torch.rand(batch, device=self._device) < _ALL_LEVELS, CODEBOOKS, some)
        with half_precision(self._device):
            made = self._decode(codes, kept).float()
        spectral = self._spectral(made, audio)
        loss, told = _SPECTRAL_WEIGHT * spectral, {"spectral": spectral}
        if judged:
            self._judge_and_please(made, audio, share, told)
            loss = loss + told["fooling"] + told["likeness"]
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        told["gradient"] = torch.nn.utils.clip_grad_norm_(self._learnt, 5.0)
        self._optimizer.step()
        return {name: value.detach() for name, value in told.items()}

    def _judge_and_please(self, made: Tensor, audio: Tensor, share: float, told: dict[str, Tensor]) -> None:
        """The judges learn from a part of the windows, then say what they think of it."""
        for group in self._judges_optimizer.param_groups:
            group["lr"] = _JUDGES_RATE * flat_then_linear(share, 0.5, 0.03)
        samples = self._shown * FRAME_SAMPLES
        first = int(torch.randint(0, made.shape[-1] - samples + 1, ()))
        ours, theirs = (wave[:, first : first + samples].contiguous() for wave in (made, audio))
        with half_precision(self._device):
            told["judges"], seen_real = self._judge(self.judges, theirs, ours.detach())
        self._judges_optimizer.zero_grad(set_to_none=True)
        told["judges"].backward()
        torch.nn.utils.clip_grad_norm_(self.judges.parameters(), 10.0)
        self._judges_optimizer.step()
        self.judges.requires_grad_(False)
        with half_precision(self._device):
            told["fooling"], told["likeness"] = self._please(self.judges, ours, seen_real)
        self.judges.requires_grad_(True)


def train(args: argparse.Namespace) -> None:
    began = time.monotonic()
    progress = Progress(args.work / "logs" / "decoder.jsonl")
    device = device_named(args.device)
    cuda = device.type == "cuda"
    torch.manual_seed(args.seed)
    decoder = CodecDecoder().to(device)
    training = DecoderTraining(decoder, Judges(), device, args.shown, compiled=cuda and not args.eager)
    if cuda:
        kept = {name: value.clone() for name, value in decoder.state_dict().items()}
        judges = {name: value.clone() for name, value in training.judges.state_dict().items()}
        codes = torch.zeros(args.windows, CODEBOOKS, args.frames, dtype=torch.int64, device=device)
        noise = torch.randn(args.windows, args.frames * FRAME_SAMPLES, device=device) * 0.1
        for judged in (False, False, True, True):
            training.update(codes, noise, 0.0, 0, judged=judged)
        decoder.load_state_dict(kept)
        training.judges.load_state_dict(judges)
        torch.cuda.synchronize()
        progress.say(compiled_s=time.monotonic() - began)

    wait_for(args.work / "codes.safetensors", args.patience)
    tokenizer = MelTokenizer().to(device).eval()
    tokenizer.load_state_dict(load_weights(args.work / "codes.safetensors"), strict=False)
    if args.start is None:
        start_from_tokenizer(decoder, tokenizer)
    else:
        decoder.load_state_dict(load_weights(args.start))
    average = WeightAverage(decoder)
    store = SpeechStore(device, args.hours, audio=True, codes=True)
    reader = ChunkReader(args.work / "speech")
    assert store.codes is not None
    while store.frames < args.enough:
        for chunk in reader.take(12):
            store.add(chunk, tokenizer)
        time.sleep(0.05)
    progress.say(hours=store.hours, began_s=time.monotonic() - began)

    clock, look, save, update = Clock(args.seconds), Every(2.0), Every(60.0), 0
    while (share := clock.share) < 1:
        if look() and store.frames < 0.98 * store.capacity:
            for chunk in reader.take(8):
                store.add(chunk, tokenizer)
        audio, covered = store.windows(args.windows, args.frames)
        codes = store.codes[covered].long().transpose(1, 2).contiguous()
        judged = share > args.judged_from
        told = training.update(codes, audio, share, update, judged=judged)
        if update % _AVERAGE_EVERY == 0:
            average.follow(growing_decay(update, 0.999, _AVERAGE_EVERY))
        if update % args.say_every == 0:
            progress.say(update=update, seconds=clock.elapsed, hours=store.hours, **told)
        if save():
            save_weights(args.work / "decoder.safetensors", average.model.state_dict())
        update += 1
    save_weights(args.work / "decoder.safetensors", average.model.state_dict())
    progress.say(done=update, seconds=clock.elapsed, hours=store.hours)
    reader.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--start", type=Path, help="weights to go on from")
    parser.add_argument("--windows", type=int, default=28)
    parser.add_argument("--frames", type=int, default=24, help="of each window")
    parser.add_argument("--shown", type=int, default=10, help="frames of each window that the judges see")
    parser.add_argument("--judged-from", type=float, default=0.2, help="share of the time after which they judge")
    parser.add_argument("--hours", type=float, default=45, help="of speech kept on the device")
    parser.add_argument("--enough", type=int, default=100_000, help="frames to begin with")
    parser.add_argument("--patience", type=float, default=600, help="seconds to wait for the codes")
    parser.add_argument("--say-every", type=int, default=200)
    parser.add_argument("--eager", action="store_true", help="compile nothing")
    parser.add_argument("--seed", type=int, default=1)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
