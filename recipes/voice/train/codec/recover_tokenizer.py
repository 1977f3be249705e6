"""Step: learns the tokenizer of a finished voice again. `python -m train.codec.recover_tokenizer W SPOKEN DECODER`

A checkpoint has the decoder, but not the encoder that made its codes, which talker and decoder need to continue their
training. SPOKEN (`train.talker.spoken_codes`) has codes that the voice spoke; DECODER, the checkpoint's, turns them
into audio of which every code is known. The encoder learns to find them: each code is classified by the distances to
its codebook's entries, which are learnt too. Once there is speech of every voice in W/speech, half of each batch is
that, with the losses of `train_tokenizer`, so that the encoder learns from what it will encode. Writes
W/codes.safetensors.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from ..optimisation import Interval, TimeBudget, flat_then_linear, warm_up
from ..run_files import TrainingLog, device_named, half_precision, load_weights, save_weights
from ..sizes import CODEBOOKS, FRAME_SAMPLES, FRAMES_PER_HOUR
from ..speech.audio import tokenizer_mel
from ..store import ChunkReader, SpeechStore
from .decoder import CodecDecoderNetwork
from .mel_tokenizer import MelTokenizer

_RATE = 1e-3
_RECORDED_WEIGHT = 0.5
_PHONE_WEIGHT = 0.25
_FRAMES_AT_ONCE = 1024
"""Most frames that are decoded at a time, padding included."""


@dataclass(frozen=True, slots=True, eq=False)
class DecodedSpeech:
    """Utterances one behind the other. audio: int16 [frames * 1920]; codes: int64 [frames, 16]."""

    audio: Tensor
    codes: Tensor

    def windows(self, count: int, frames: int) -> tuple[Tensor, Tensor]:
        """Random windows: audio float [count, frames * 1920] and codes int64 [count, frames, 16]."""
        device = self.codes.device
        start = torch.randint(0, len(self.codes) - frames + 1, (count, 1), device=device)
        samples = start * FRAME_SAMPLES + torch.arange(frames * FRAME_SAMPLES, device=device)
        return self.audio[samples].float() / 32768, self.codes[start + torch.arange(frames, device=device)]


@torch.no_grad()
def decode_utterances(
    decoder: CodecDecoderNetwork, codes: Tensor, lengths: list[int], device: torch.device
) -> DecodedSpeech:
    """Decode utterances, each without history. codes: int [frames, 16] of all; lengths: frames of each."""
    utterances = sorted(codes.to(device).long().split(lengths), key=len)
    batch: list[Tensor] = []
    audio: list[Tensor] = []

    def decode_batch() -> None:
        padded = nn.utils.rnn.pad_sequence(batch, batch_first=True).transpose(1, 2).contiguous()
        with half_precision(device):
            decoded = decoder(padded).float()
        pcm = (decoded.clamp(-1, 1) * 32767).short()
        audio.extend(pcm[row, : len(one) * FRAME_SAMPLES] for row, one in enumerate(batch))
        batch.clear()

    for utterance in utterances:
        if batch and len(utterance) * (len(batch) + 1) > _FRAMES_AT_ONCE:
            decode_batch()
        batch.append(utterance)
    decode_batch()
    order = torch.randperm(len(utterances)).tolist()
    return DecodedSpeech(torch.cat([audio[n] for n in order]), torch.cat([utterances[n] for n in order]))


def start_from_decoder(tokenizer: MelTokenizer, decoder: CodecDecoderNetwork) -> None:
    """Give the tokenizer the decoder's codebooks, as parameters, and its projections."""
    quantizer, codebooks = decoder.quantizer, tokenizer.codebooks
    levels = [*quantizer.rvq_first.vq.layers, *quantizer.rvq_rest.vq.layers]
    entries = torch.stack([level._codebook.embedding_sum.detach() for level in levels])
    del codebooks.entries
    codebooks.entries = nn.Parameter(entries.clone())
    with torch.no_grad():
        tokenizer.out_first.weight.copy_(quantizer.rvq_first.output_proj.weight[..., 0])
        tokenizer.out_rest.weight.copy_(quantizer.rvq_rest.output_proj.weight[..., 0])


class CodeLoss(nn.Module):
    """Cross-entropy of each code given those before it, by the distances to its codebook's entries."""

    def __init__(self) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(CODEBOOKS))

    def forward(self, first: Tensor, rest: Tensor, entries: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Losses and shares of codes found, float [16] each.

        first, rest: latents, float [batch, T, width]. entries: float [16, 512, width]. codes: int64 [batch, T, 16].
        """
        wanted = codes.flatten(0, 1).t()
        chosen = torch.stack([F.embedding(code, book) for code, book in zip(wanted, entries, strict=True)])
        before = torch.cat([torch.zeros_like(chosen[:1]), chosen[1:-1].cumsum(0)])
        residuals = torch.cat([first.flatten(0, 1)[None], rest.flatten(0, 1)[None] - before])
        nearness = torch.baddbmm(-0.5 * entries.square().sum(-1)[:, None], residuals, entries.transpose(1, 2))
        logits = nearness * self.log_scale.exp()[:, None, None]
        losses = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="none").view_as(wanted).mean(1)
        return losses, (nearness.argmax(-1) == wanted).float().mean(1)


def train(args: argparse.Namespace) -> None:
    """Run the step with the options of `main`."""
    work, windows, frames, device = args.work, args.windows, args.frames, device_named(args.device)
    cuda = device.type == "cuda"
    torch.manual_seed(args.seed)
    log = TrainingLog(work / "logs" / "codes.jsonl")
    decoder = CodecDecoderNetwork().to(device).eval()
    decoder.load_state_dict(load_weights(args.decoder))
    spoken = load_file(args.spoken)
    speech = decode_utterances(decoder, spoken["codes"], spoken["lengths"].tolist(), device)
    model, code_loss = MelTokenizer().to(device), CodeLoss().to(device)
    start_from_decoder(model, decoder)
    del decoder
    store = SpeechStore(device, args.hours, audio=True, codes=False)
    reader = ChunkReader(work / "speech")
    parameters = [*model.parameters(), *code_loss.parameters()]
    optimizer = torch.optim.AdamW(parameters, _RATE, betas=(0.9, 0.98), weight_decay=1e-3, fused=cuda)
    weights = torch.linspace(1.5, 0.5, CODEBOOKS, device=device)
    log.write(spoken_hours=len(speech.codes) / FRAMES_PER_HOUR)
    clock, look, update = TimeBudget(args.seconds), Interval(2.0), 0
    while (share := clock.share) < 1:
        if look() and store.frames < 0.97 * store.capacity:
            for chunk in reader.take(12):
                store.add(chunk)
        for group in optimizer.param_groups:
            group["lr"] = _RATE * warm_up(update, 100) * flat_then_linear(share, 0.5, 0.02)
        heard = min(store.voice_frames.values()) >= args.voice_frames or share > args.recorded_from
        audio, codes = speech.windows(windows // 2 if heard else windows, frames)
        spoken_windows = len(audio)
        if heard:
            recorded, covered = store.windows(windows - spoken_windows, frames)
            audio = torch.cat([audio, recorded])
        if update % 8 == 7:
            audio = audio * 10 ** (torch.rand(len(audio), 1, device=device) * -0.5)
        mel = tokenizer_mel(audio)
        with half_precision(device):
            first, rest = model.latent(mel)
            out = model.reconstruct(first, rest, quantise=True)
        entries = model.codebooks.entries
        losses, found = code_loss(first[:spoken_windows], rest[:spoken_windows], entries, codes)
        error = out.mel.float() - mel
        absolute, squared = error.abs().mean(), error.square().mean()
        loss = (losses * weights).mean() + _RECORDED_WEIGHT * (2 * absolute + squared + 0.25 * out.commitment)
        entry: dict[str, Tensor] = {
            "code": losses.mean(),
            "found": found,
            "mel": absolute,
            "commitment": out.commitment,
        }
        if heard:
            logits, phones = out.phone_logits[spoken_windows:].float(), store.phones[covered].long()
            loss = loss + _PHONE_WEIGHT * F.cross_entropy(logits.flatten(0, 2), phones.flatten(), label_smoothing=0.05)
            entry["mel_recorded"] = error[spoken_windows:].abs().mean()
            entry["phones_right"] = (logits.argmax(-1) == phones).float().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if update % (200 if cuda else 5) == 0:
            log.write(update=update, seconds=clock.elapsed, hours=store.hours, **entry)
        update += 1
    reader.close()
    save_weights(work / "codes.safetensors", model.eval().frozen_state())
    log.write(done=update, seconds=clock.elapsed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("spoken", type=Path)
    parser.add_argument("decoder", type=Path)
    parser.add_argument("--seconds", type=float, default=130)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--hours", type=float, default=30, help="hours of recorded speech kept on the device")
    parser.add_argument("--windows", type=int, default=256)
    parser.add_argument("--frames", type=int, default=32, help="frames of each window")
    parser.add_argument("--voice-frames", type=int, default=15_000, help="frames of each voice from which it is used")
    parser.add_argument("--recorded-from", type=float, default=0.6, help="share of the time from which it is used")
    parser.add_argument("--seed", type=int, default=1)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
