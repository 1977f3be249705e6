"""Kokoro-82M's network (StyleTTS 2 with an inverse STFT), for padded batches of sentences, in inference only.

Padding changes nothing: norms and recurrent layers see the valid steps only, and convolutions zeros beyond them. Styles
are [batch, 256]: the first half for the sound, the second for durations, pitch and energy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from .kokoro_prosody import ProsodyPredictor, StyledBlock, StyledNorm, TextEncoder, TokenEncoder, valid_steps

FRAME_SAMPLES = 600
"""Samples of a frame of 25 ms, the unit of durations."""
_FFT, _HOP = 20, 5
_HARMONICS, _AMPLITUDE, _NOISE = 9, 0.1, 0.003
_VOICED_HZ, _RATE_HZ, _PITCH_SAMPLES = 10, 24_000, 300


@dataclass(frozen=True, slots=True)
class SpokenBatch:
    """Audio float32 [batch, samples], padded, and durations int64 [batch, tokens] in frames, 0 in the padding."""

    audio: Tensor
    durations: Tensor


class SnakeBlock(nn.Module):
    """Three pairs of convolutions with styled norms and the activation x + sin(a x)^2 / a."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()

        def convolutions(dilations: Sequence[int]) -> nn.ModuleList:
            return nn.ModuleList(
                nn.Conv1d(channels, channels, kernel, dilation=d, padding=d * (kernel - 1) // 2) for d in dilations
            )

        def factors() -> nn.ParameterList:
            return nn.ParameterList([nn.Parameter(torch.ones(1, channels, 1)) for _ in range(3)])

        self.convs1, self.convs2 = convolutions((1, 3, 5)), convolutions((1, 1, 1))
        self.adain1 = nn.ModuleList(StyledNorm(channels) for _ in range(3))
        self.adain2 = nn.ModuleList(StyledNorm(channels) for _ in range(3))
        self.alpha1, self.alpha2 = factors(), factors()

    def forward(self, x: Tensor, style: Tensor, valid: Tensor) -> Tensor:
        """[batch, channels, steps] -> the same; `valid`: [batch, 1, steps]."""
        for n in range(3):
            y = self.convs1[n](_snake(self.adain1[n](x, style, valid), self.alpha1[n]))
            x = self.convs2[n](_snake(self.adain2[n](y, style, valid), self.alpha2[n])) + x
        return x


def _snake(x: Tensor, factor: Tensor) -> Tensor:
    return x + torch.sin(factor * x).square() / factor


class HarmonicSource(nn.Module):
    """Sines at the pitch and its multiples with a little noise, and noise where there is no pitch."""

    def __init__(self) -> None:
        super().__init__()
        self.l_linear = nn.Linear(_HARMONICS, 1)

    def forward(self, pitch: Tensor, *, noise: bool) -> Tensor:
        """Pitch in Hz, [batch, steps], each step 300 samples -> [batch, 300 * steps]."""
        multiples = torch.arange(1, _HARMONICS + 1, device=pitch.device)[:, None]
        turns = (pitch[:, None] * multiples / _RATE_HZ % 1).cumsum(-1) * (2 * math.pi)
        phase = F.interpolate(turns * _PITCH_SAMPLES, scale_factor=float(_PITCH_SAMPLES), mode="linear")
        voiced = (pitch > _VOICED_HZ).float().repeat_interleave(_PITCH_SAMPLES, 1)[:, None]
        waves = torch.sin(phase) * _AMPLITUDE * voiced
        if noise:
            waves = waves + (voiced * _NOISE + (1 - voiced) * _AMPLITUDE / 3) * torch.randn_like(waves)
        return torch.tanh(self.l_linear(waves.transpose(1, 2))).squeeze(-1)


class Generator(nn.Module):
    """Upsamples 80 Hz by 60, adds the source at each of two scales, and inverts the spectrum."""

    def __init__(self) -> None:
        super().__init__()
        self.m_source = HarmonicSource()
        self.noise_convs = nn.ModuleList([nn.Conv1d(_FFT + 2, 256, 12, 6, 3), nn.Conv1d(_FFT + 2, 128, 1)])
        self.noise_res = nn.ModuleList([SnakeBlock(256, 7), SnakeBlock(128, 11)])
        self.ups = nn.ModuleList(
            [nn.ConvTranspose1d(512, 256, 20, 10, padding=5), nn.ConvTranspose1d(256, 128, 12, 6, padding=3)]
        )
        self.resblocks = nn.ModuleList(SnakeBlock(channels, kernel) for channels in (256, 128) for kernel in (3, 7, 11))
        self.conv_post = nn.Conv1d(128, _FFT + 2, 7, padding=3)

    def forward(self, x: Tensor, style: Tensor, source: Tensor, frames: Tensor) -> Tensor:
        """[batch, 512, steps] at 80 Hz and the source [batch, 300 * steps] -> audio [batch, 300 * steps]."""
        window = torch.hann_window(_FFT, device=x.device)
        longest = x.shape[-1] // 2
        spectrum = torch.stft(source, _FFT, _HOP, _FFT, window=window, return_complex=True)
        harmonics = torch.cat([spectrum.abs(), spectrum.angle()], 1)
        harmonics = harmonics * valid_steps(frames, harmonics.shape[-1], longest)
        for stage in range(2):
            x = F.leaky_relu(x, 0.1) * valid_steps(frames, x.shape[-1], longest)
            added = self.noise_convs[stage](harmonics)
            valid = valid_steps(frames, added.shape[-1], longest)
            x = self.ups[stage](x)
            if stage == 1:
                x = F.pad(x, (1, 0), mode="reflect")
            x = x + self.noise_res[stage](added, style, valid)
            x = (
                sum((block(x, style, valid) for block in self.resblocks[3 * stage : 3 * stage + 3]), x.new_zeros(()))
                / 3
            )
        x = self.conv_post(F.leaky_relu(x) * valid_steps(frames, x.shape[-1], longest))
        bins = _FFT // 2 + 1
        made = torch.polar(x[:, :bins].exp(), torch.sin(x[:, bins:]))
        return torch.istft(made, _FFT, _HOP, _FFT, window=window)


class SoundDecoder(nn.Module):
    """Makes audio from the aligned text, the pitch and the energy."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = StyledBlock(514, 1024)
        self.decode = nn.ModuleList([StyledBlock(1090, 1024), StyledBlock(1090, 1024), StyledBlock(1090, 1024)])
        self.decode.append(StyledBlock(1090, 512, doubles=True))
        self.F0_conv, self.N_conv = nn.Conv1d(1, 1, 3, 2, 1), nn.Conv1d(1, 1, 3, 2, 1)
        self.asr_res = nn.Sequential(nn.Conv1d(512, 64, 1))
        self.generator = Generator()

    def forward(
        self, text: Tensor, pitch: Tensor, energy: Tensor, style: Tensor, frames: Tensor, source: Tensor
    ) -> Tensor:
        """Text [batch, 512, T]; pitch, energy [batch, 2 T]; source [batch, 600 T] -> audio [batch, 600 T]."""
        valid = valid_steps(frames, text.shape[-1], text.shape[-1])
        curves = [conv(c[:, None]) * valid for conv, c in ((self.F0_conv, pitch), (self.N_conv, energy))]
        x = self.encode(torch.cat([text, *curves], 1), style, valid)
        residual = self.asr_res(text)
        for block in self.decode:
            x = block(torch.cat([x, residual, *curves], 1), style, valid)
        made: Tensor = self.generator(x, style, source, frames)
        return made


class KokoroNetwork(nn.Module):
    """The whole network; its tensors have the names of `kokoro_weights`."""

    def __init__(self) -> None:
        super().__init__()
        self.bert = TokenEncoder()
        self.bert_encoder = nn.Linear(768, 512)
        self.predictor = ProsodyPredictor()
        self.text_encoder = TextEncoder()
        self.decoder = SoundDecoder()

    @torch.inference_mode()
    def speak(self, ids: Sequence[Sequence[int]], styles: Tensor, *, noise: bool = True) -> SpokenBatch:
        """Speak sentences of phoneme ids with 0 at both ends, with styles [batch, 256] on the network's device.

        `noise`: of the source, as in training; drawn from the device's default generator.
        """
        device, lengths = styles.device, torch.tensor([len(sentence) for sentence in ids])
        tokens = nn.utils.rnn.pad_sequence([torch.tensor(sentence) for sentence in ids], batch_first=True).to(device)
        valid = (torch.arange(tokens.shape[1])[None] < lengths[:, None]).to(device)
        sound_style, style = styles.chunk(2, 1)
        encoded = self.predictor.text_encoder(self.bert_encoder(self.bert(tokens, valid)), style, lengths, valid)
        durations = self.predictor.durations(encoded, lengths).masked_fill(~valid, 0)
        frames = durations.sum(1)
        counts = frames.cpu()
        longest = int(counts.max())
        at = torch.arange(longest, device=device)
        # A frame belongs to the first token that ends after it.
        token = torch.searchsorted(durations.cumsum(1), at.expand(len(ids), -1).contiguous(), right=True)
        token = token.clamp(max=tokens.shape[1] - 1)[..., None]
        inside = (at < frames[:, None])[..., None]

        def aligned(x: Tensor) -> Tensor:
            return x.gather(1, token.expand(-1, -1, x.shape[-1])) * inside

        pitch, energy = self.predictor.curves(aligned(encoded), style, frames, counts)
        text = aligned(self.text_encoder(tokens, lengths, valid)).transpose(1, 2)
        source = self.decoder.generator.m_source(pitch, noise=noise)
        return SpokenBatch(self.decoder(text, pitch, energy, sound_style, frames, source), durations)


def load_network(folder: Path) -> tuple[KokoroNetwork, dict[str, Tensor]]:
    """Load FOLDER/kokoro.*.safetensors: the network, on the CPU, and the styles of each speaker, [510, 256].

    Raises RuntimeError for missing or unknown weights.
    """
    stored: dict[str, Tensor] = {}
    for path in sorted(folder.glob("kokoro.*.safetensors")):
        stored.update(load_file(path))
    weights, styles = {}, {}
    for name, value in stored.items():
        if name.startswith("style."):
            styles[name.removeprefix("style.")] = value
        elif f"{name}.scale" in stored:
            weights[name] = (value.float() - stored[f"{name}.zero"]) * stored[f"{name}.scale"]
        elif not name.endswith((".scale", ".zero")):
            weights[name] = value
    network = KokoroNetwork()
    network.load_state_dict(weights)
    return network.eval().requires_grad_(False), styles
