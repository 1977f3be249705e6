"""The codec decoder as docs/qwen3_tts.md, section 8.2, defines it: single pass, plain convolutions, nothing folded.

Shares no code with the product, so that an error there cannot hide here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class OracleDecoder:
    def __init__(self, section: Mapping[str, Any], tensors: Mapping[str, Tensor], dtype: torch.dtype) -> None:
        """`section`: `decoder_config`; `tensors`: by their names without the prefix `decoder.`."""
        self.c = section
        self.w = {name: tensor.to(dtype) for name, tensor in tensors.items()}

    @torch.no_grad()
    def __call__(self, codes: Tensor) -> Tensor:
        """Decodes int64 [B, T, 16] to [B, T * 1920]."""
        x = self.conv("pre_conv.conv", self.dequantise(codes.transpose(1, 2)))
        x = self.transformer(x.transpose(1, 2)).transpose(1, 2)
        for stage, ratio in enumerate(self.c["upsampling_ratios"]):
            x = self.transposed(f"upsample.{stage}.0.conv", x, ratio)
            x = self.conv_next(f"upsample.{stage}.1", x)
        x = self.conv("decoder.0.conv", x)
        for index, rate in enumerate(self.c["upsample_rates"]):
            block = f"decoder.{index + 1}.block"
            x = self.transposed(f"{block}.1.conv", self.snake(f"{block}.0", x), rate)
            for unit, dilation in ((2, 1), (3, 3), (4, 9)):
                h = self.conv(f"{block}.{unit}.conv1.conv", self.snake(f"{block}.{unit}.act1", x), dilation)
                x = x + self.conv(f"{block}.{unit}.conv2.conv", self.snake(f"{block}.{unit}.act2", h))
        last = len(self.c["upsample_rates"]) + 1
        x = self.conv(f"decoder.{last + 1}.conv", self.snake(f"decoder.{last}", x))
        return x.clamp(-1, 1)[:, 0]

    def dequantise(self, codes: Tensor) -> Tensor:
        total = None
        for stack, books in (("first", codes[:, :1]), ("rest", codes[:, 1:])):
            summed = 0
            for layer in range(books.shape[1]):
                book = f"quantizer.rvq_{stack}.vq.layers.{layer}._codebook"
                table = self.w[f"{book}.embedding_sum"] / self.w[f"{book}.cluster_usage"].clamp(min=1e-5)[:, None]
                summed = summed + F.embedding(books[:, layer], table)
            y = F.conv1d(summed.transpose(1, 2), self.w[f"quantizer.rvq_{stack}.output_proj.weight"])
            total = y if total is None else total + y
        return total

    def conv(self, name: str, x: Tensor, dilation: int = 1, groups: int = 1) -> Tensor:
        weight, bias = self.w[f"{name}.weight"], self.w[f"{name}.bias"]
        x = F.pad(x, ((weight.shape[2] - 1) * dilation, 0))
        return F.conv1d(x, weight, bias, dilation=dilation, groups=groups)

    def transposed(self, name: str, x: Tensor, stride: int) -> Tensor:
        weight, bias = self.w[f"{name}.weight"], self.w[f"{name}.bias"]
        y = F.conv_transpose1d(x, weight, bias, stride=stride)
        return y[:, :, : x.shape[2] * stride]

    def snake(self, name: str, x: Tensor) -> Tensor:
        alpha, beta = (self.w[f"{name}.{p}"].exp()[None, :, None] for p in ("alpha", "beta"))
        return x + torch.sin(x * alpha) ** 2 / (beta + 1e-9)

    def conv_next(self, name: str, x: Tensor) -> Tensor:
        h = self.conv(f"{name}.dwconv.conv", x, groups=x.shape[1]).transpose(1, 2)
        h = F.layer_norm(h, h.shape[-1:], self.w[f"{name}.norm.weight"], self.w[f"{name}.norm.bias"], 1e-6)
        h = F.gelu(self.linear(f"{name}.pwconv1", h))
        h = self.w[f"{name}.gamma"] * self.linear(f"{name}.pwconv2", h)
        return x + h.transpose(1, 2)

    def linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.w[f"{name}.weight"], self.w.get(f"{name}.bias"))

    def norm(self, name: str, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.c["rms_norm_eps"]) * self.w[f"{name}.weight"]

    def transformer(self, x: Tensor) -> Tensor:
        steps, dim, window = x.shape[1], self.c["head_dim"], self.c["sliding_window"]
        t = torch.arange(steps)
        frequency = self.c["rope_theta"] ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        angle = (t[:, None] * frequency).repeat(1, 2)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        behind = t[:, None] - t
        hidden = (behind < 0) | (behind >= window)
        x = self.linear("pre_transformer.input_proj", x)
        for index in range(self.c["num_hidden_layers"]):
            layer = f"pre_transformer.layers.{index}"
            h = self.norm(f"{layer}.input_layernorm", x)
            q, k, v = (self.heads(self.linear(f"{layer}.self_attn.{n}_proj", h)) for n in "qkv")
            q, k = (y * cos + torch.cat((-y[..., dim // 2 :], y[..., : dim // 2]), -1) * sin for y in (q, k))
            share = q.shape[1] // k.shape[1]
            k, v = k.repeat_interleave(share, 1), v.repeat_interleave(share, 1)
            score = (q @ k.transpose(2, 3) / dim**0.5).masked_fill(hidden, -torch.inf).softmax(-1)
            h = self.linear(f"{layer}.self_attn.o_proj", (score @ v).transpose(1, 2).flatten(2))
            x = x + self.w[f"{layer}.self_attn_layer_scale.scale"] * h
            h = self.norm(f"{layer}.post_attention_layernorm", x)
            h = F.silu(self.linear(f"{layer}.mlp.gate_proj", h)) * self.linear(f"{layer}.mlp.up_proj", h)
            x = x + self.w[f"{layer}.mlp_layer_scale.scale"] * self.linear(f"{layer}.mlp.down_proj", h)
        return self.linear("pre_transformer.output_proj", self.norm("pre_transformer.norm", x))

    def heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.c["head_dim"])).transpose(1, 2)
