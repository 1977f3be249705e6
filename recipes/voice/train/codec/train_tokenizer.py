"""Step: trains the tokenizer on speech. `python -m train.codec.train_tokenizer W --seconds 130`

Writes W/codes.safetensors: encoder, projections and codebooks, which later steps leave unchanged.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F

from ..optimisation import Interval, TimeBudget, flat_then_linear, warm_up
from ..run_files import TrainingLog, device_named, half_precision, save_weights
from ..sizes import FRAMES_PER_HOUR
from ..speech.audio import tokenizer_mel
from ..store import ChunkReader, SpeechStore, wait_for_voices
from .mel_tokenizer import MelTokenizer

_RATE = 1e-3
_QUANTISE_FROM = 0.12
_PHONE_WEIGHT = 0.25


def train(args: argparse.Namespace) -> None:
    """Run the step with the options of `main`."""
    work, windows, frames, device = args.work, args.windows, args.frames, device_named(args.device)
    torch.manual_seed(args.seed)
    log = TrainingLog(work / "logs" / "codes.jsonl")
    store = SpeechStore(device, args.hours, audio=True, codes=False)
    reader = ChunkReader(work / "speech")

    def take(limit: int) -> None:
        for chunk in reader.take(limit):
            store.add(chunk)

    wait_for_voices(store, take, 4 * frames + 8 * windows, args.voice_frames, args.voices_wait_s)
    model = MelTokenizer().to(device)
    cuda = device.type == "cuda"
    optimizer = torch.optim.AdamW(model.parameters(), _RATE, betas=(0.9, 0.98), weight_decay=1e-3, fused=cuda)
    clock, look, quantise, update = TimeBudget(args.seconds), Interval(2.0), False, 0
    while (share := clock.share) < 1:
        if look() and store.frames < 0.97 * store.capacity:
            take(12)
        rate = _RATE * warm_up(update, 100) * flat_then_linear(share, 0.5, 0.02)
        for group in optimizer.param_groups:
            group["lr"] = rate
        audio, covered = store.windows(windows, frames)
        if update % 8 == 7:
            audio = audio * 10 ** (torch.rand(windows, 1, device=device) * -0.5)
        mel, phones = tokenizer_mel(audio), store.phones[covered].long()
        if not quantise and share > _QUANTISE_FROM:
            _initialise_codebooks(model, store, max(windows, 64))
            quantise = True
        with half_precision(device):
            out = model(mel, quantise)
        error = out.mel.float() - mel
        phone_loss = F.cross_entropy(out.phone_logits.float().flatten(0, 2), phones.flatten(), label_smoothing=0.05)
        absolute, squared = error.abs().mean(), error.square().mean()
        loss = 2 * absolute + squared + 0.25 * out.commitment + _PHONE_WEIGHT * phone_loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        revived = 0
        if out.codes is not None and out.residuals is not None:
            model.codebooks.learn(out.codes, out.residuals, 0.97 if share < 0.5 else 0.99)
            if share < 0.7 and update % 20 == 0:
                revived = model.codebooks.revive(out.residuals)
        if update % (200 if cuda else 5) == 0:
            right = (out.phone_logits.argmax(-1) == phones).float().mean()
            log.write(
                update=update,
                seconds=clock.elapsed,
                mel=absolute,
                squared=squared,
                commitment=out.commitment,
                phones=phone_loss,
                phones_right=right,
                revived=revived,
                hours=store.frames / FRAMES_PER_HOUR,
            )
        update += 1
    reader.close()
    save_weights(work / "codes.safetensors", model.eval().frozen_state())
    log.write(done=update, seconds=clock.elapsed)


def _initialise_codebooks(model: MelTokenizer, store: SpeechStore, windows: int) -> None:
    audio, _ = store.windows(windows, 64)
    model.eval()
    with torch.no_grad():
        first, rest = model.latent(tokenizer_mel(audio))
        model.codebooks.initialise(first.flatten(0, 1), rest.flatten(0, 1))
    model.train()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--seconds", type=float, default=130)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--hours", type=float, default=30, help="hours of speech kept on the device")
    parser.add_argument("--windows", type=int, default=256)
    parser.add_argument("--frames", type=int, default=32, help="frames of each window")
    parser.add_argument("--voice-frames", type=int, default=15_000, help="frames of each voice to start with")
    parser.add_argument("--voices-wait-s", type=float, default=240, help="most seconds to wait for them")
    parser.add_argument("--seed", type=int, default=1)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
