"""An independent talker: one utterance at a time, with the whole text, after `docs/qwen3_tts.md`, sections 4 to 7.

It shares no code with the product: attention, rotary embedding, prompt, generation rules and noise are its own. Every
linear map is applied where the description has it; none is folded into another.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Options:
    temperature: float = 0.6
    top_k: int = 50
    top_p: float = 1.0
    penalty: float = 1.0
    predictor_temperature: float = 0.6
    predictor_top_k: int = 50
    predictor_top_p: float = 1.0


@dataclass(frozen=True)
class Voice:
    """The prompt before the text: a named speaker, a vector with or without a reference, or instructions alone."""

    speaker: str | None = None
    vector: Tensor | None = None
    language: str = "auto"
    instruct: tuple[int, ...] = ()
    reference: tuple[int, ...] = ()
    frames: tuple[tuple[int, ...], ...] = ()
    streaming: bool = True


@dataclass(frozen=True)
class Spoken:
    """`frames`: the codes; `margin`: the smallest distance of any draw from another outcome, as a probability, or as a
    logit where two candidates are nearly equal."""

    frames: list[list[int]]
    ended: bool
    margin: float


def finalise(x: int) -> int:
    """SplitMix64 (Steele, Lea, Flood 2014)."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def noise(seed: int, frame: int, group: int, groups: int) -> float:
    hashed = finalise((finalise(seed & MASK) + frame * groups + group) & MASK)
    return ((hashed >> 40) & 0xFFFFFF) / 2**24


def choose(logits: Tensor, temperature: float, top_k: int, top_p: float, u: float) -> tuple[int, float]:
    """The sampled id and its margin, also from a neighbour in the order, which decides too. `logits`: float [vocab]."""
    values, order = torch.sort(logits.double(), descending=True)
    if temperature <= 0:
        return int(order[0]), float(values[0] - values[1])
    kept = values[: top_k or len(values)] / temperature
    mass = torch.softmax(kept, 0).cumsum(0)
    if top_p < 1:
        count = int((mass < top_p).sum()) + 1
        mass = mass[:count] / mass[min(count, len(mass)) - 1]
    index = int((mass <= u).sum())
    edges = torch.cat([mass.new_zeros(1), mass])
    margin = min(float(u - edges[index]), float(edges[index + 1] - u)) if u > 0 else 1.0
    index = min(index, len(mass) - 1)
    ties = (values[:-1] - values[1:])[max(0, index - 1) : index + 1]
    return int(order[index]), min(margin, float(ties.min()))


class Stack:
    """Plain decoder (`docs/qwen3_tts.md`, section 5): pre-norm, q/k norms, rotary halves, GQA, SwiGLU."""

    def __init__(self, weights: dict[str, Tensor], prefix: str, config: dict) -> None:
        self.w, self.prefix, self.c = weights, prefix, config

    def norm(self, x: Tensor, name: str) -> Tensor:
        x = x.float()
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.c["rms_norm_eps"]) * self.w[self.prefix + name]

    def rope(self, x: Tensor, start: int) -> Tensor:
        dim = self.c["head_dim"]
        inverse = 1.0 / self.c["rope_theta"] ** (torch.arange(0, dim, 2).float() / dim)
        angle = (start + torch.arange(x.shape[1])).float()[:, None] * inverse
        cos, sin = torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)
        turned = torch.cat([-x[..., dim // 2 :], x[..., : dim // 2]], -1)
        return x * cos + turned * sin

    def kept(self, x: Tensor) -> Tensor:
        """Keys or values as the cache holds them."""
        return x

    def run(self, x: Tensor, cache: list) -> Tensor:
        """x: [t, hidden]; `cache`: one (keys, values) per layer, grown in place."""
        c, t = self.c, len(x)
        heads, kv, dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        for i in range(c["num_hidden_layers"]):
            name = f"layers.{i}."
            get = lambda part, name=name: self.w[f"{self.prefix}{name}{part}.weight"]  # noqa: E731  # reads as the formula
            h = self.norm(x, name + "input_layernorm.weight")
            q = (h @ get("self_attn.q_proj").T).view(t, heads, dim).transpose(0, 1)
            k = (h @ get("self_attn.k_proj").T).view(t, kv, dim).transpose(0, 1)
            v = (h @ get("self_attn.v_proj").T).view(t, kv, dim).transpose(0, 1)
            start = 0 if len(cache) <= i else cache[i][0].shape[1]
            q = self.rope(self.norm(q, name + "self_attn.q_norm.weight"), start)
            k, v = self.kept(self.rope(self.norm(k, name + "self_attn.k_norm.weight"), start)), self.kept(v)
            if len(cache) <= i:
                cache.append((k, v))
            else:
                cache[i] = (torch.cat([cache[i][0], k], 1), torch.cat([cache[i][1], v], 1))
            keys, values = (z.repeat_interleave(heads // kv, 0) for z in cache[i])
            scores = q @ keys.transpose(1, 2) / dim**0.5
            past = torch.arange(keys.shape[1])[None] <= start + torch.arange(t)[:, None]
            a = torch.softmax(scores.masked_fill(~past, float("-inf")), -1) @ values
            x = x + a.transpose(0, 1).reshape(t, -1) @ get("self_attn.o_proj").T
            h = self.norm(x, name + "post_attention_layernorm.weight")
            x = x + (F.silu(h @ get("mlp.gate_proj").T) * (h @ get("mlp.up_proj").T)) @ get("mlp.down_proj").T
        return self.norm(x, "norm.weight")


class PlainTalker:
    def __init__(self, folder: Path) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        self.c = self.config["talker_config"]
        self.w = {name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()}
        self.talker = Stack(self.w, "talker.model.", self.c)
        self.predictor = Stack(self.w, "talker.code_predictor.model.", self.c["code_predictor_config"])

    def text(self, token: int) -> Tensor:
        w = self.w
        x = w["talker.model.text_embedding.weight"][token]
        x = F.linear(x, w["talker.text_projection.linear_fc1.weight"], w["talker.text_projection.linear_fc1.bias"])
        x = F.silu(x)
        return F.linear(x, w["talker.text_projection.linear_fc2.weight"], w["talker.text_projection.linear_fc2.bias"])

    def code(self, token: int) -> Tensor:
        return self.w["talker.model.codec_embedding.weight"][token]

    def rest(self, group: int, token: int) -> Tensor:
        return self.w[f"talker.code_predictor.model.codec_embedding.{group - 1}.weight"][token]

    def narrow(self, x: Tensor) -> Tensor:
        name = "talker.code_predictor.small_to_mtp_projection."
        return F.linear(x, self.w[name + "weight"], self.w[name + "bias"]) if name + "weight" in self.w else x

    def frame(self, codes: Sequence[int]) -> Tensor:
        return self.code(codes[0]) + sum(self.rest(group, code) for group, code in enumerate(codes) if group)

    def tag(self, voice: Voice) -> list[int]:
        c, language = self.c, voice.language
        dialect = c["spk_is_dialect"][voice.speaker] if voice.speaker else False
        if language in ("auto", "chinese") and dialect:
            language = dialect
        if language == "auto":
            return [c["codec_nothink_id"], c["codec_think_bos_id"], c["codec_think_eos_id"]]
        number = c["codec_language_id"][language]
        return [c["codec_think_id"], c["codec_think_bos_id"], number, c["codec_think_eos_id"]]

    def prompt(self, tokens: list[int], voice: Voice) -> tuple[list[Tensor], list[int]]:
        """The input up to where speech begins, and the text ids of the positions after it."""
        c, top = self.c, self.config
        pad, eos = self.text(top["tts_pad_token_id"]), top["tts_eos_token_id"]
        filler, begin = self.code(c["codec_pad_id"]), self.code(c["codec_bos_id"])
        role = [top["im_start_token_id"], top["assistant_token_id"], top.get("newline_token_id", 198)]
        rows = [self.text(token) for token in (*voice.instruct, *role)]
        rows += [pad + self.code(entry) for entry in self.tag(voice)]
        if voice.speaker is not None:
            rows.append(pad + self.code(c["spk_id"][voice.speaker]))
        if voice.vector is not None:
            rows.append(pad + voice.vector)
        rows.append(self.text(top["tts_bos_token_id"]) + filler)
        text = [*voice.reference, *tokens, eos]
        speech = [begin, *(self.frame(frame) for frame in voice.frames)]
        if not voice.streaming:
            return [*rows, *(self.text(token) + filler for token in text), *(pad + part for part in speech)], []
        for part in speech:
            rows.append((self.text(text.pop(0)) if text else pad) + part)
        return rows, text

    @torch.inference_mode()
    def speak(
        self, tokens: list[int], seed: int, o: Options, voice: Voice, cap: int, *, early_end: bool = False
    ) -> Spoken:
        """`early_end`: speech may end before its text was read."""
        c = self.c
        groups, book = c["num_code_groups"], c["code_predictor_config"]["vocab_size"]
        rows, trailing = self.prompt(tokens, voice)
        unread = 0 if early_end else len(trailing)
        pad = self.config["tts_pad_token_id"]
        cache: list = []
        hidden = self.talker.run(torch.stack(rows), cache)[-1]
        frames: list[list[int]] = []
        margin = 1.0
        while True:
            step = len(frames)
            logits = self.w["talker.codec_head.weight"] @ hidden
            for seen in {frame[0] for frame in frames}:
                logits[seen] = logits[seen] * o.penalty if logits[seen] < 0 else logits[seen] / o.penalty
            allowed = list(range(book))
            if step >= 2 and step >= unread:
                allowed.append(c["codec_eos_token_id"])
            index, near = choose(logits[allowed], o.temperature, o.top_k, o.top_p, noise(seed, step, 0, groups))
            margin = min(margin, near)
            first = allowed[index]
            if first == c["codec_eos_token_id"]:
                return Spoken(frames, ended=True, margin=margin)
            if step >= cap:
                return Spoken(frames, ended=False, margin=margin)
            frame = [first]
            inner: list = []
            inputs = torch.stack([self.narrow(hidden), self.narrow(self.code(first))])
            for group in range(1, groups):
                out = self.predictor.run(inputs, inner)[-1]
                logits = self.w[f"talker.code_predictor.lm_head.{group - 1}.weight"] @ out
                u = noise(seed, step, group, groups)
                drawn, near = choose(logits, o.predictor_temperature, o.predictor_top_k, o.predictor_top_p, u)
                margin = min(margin, near)
                frame.append(drawn)
                inputs = self.narrow(self.rest(group, drawn))[None]
            frames.append(frame)
            x = self.frame(frame) + self.text(trailing[step] if step < len(trailing) else pad)
            hidden = self.talker.run(x[None], cache)[-1]
