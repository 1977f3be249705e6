"""What a cache of keys and values in another type changes in the speech of the demo voice.

`PYTHONPATH=$(scripts/link-packages) .venv/bin/python -m tests.scale.cache_error` prints a table, in some two minutes on
two cores. The independent talker speaks in float32, and reads the same frames again with keys and values rounded. The
logits of the first code of each frame are compared: whether the most probable code is the same, whether the same random
number draws the same code, and by how much of the probability the distributions differ.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from ..pipeline.talker.plain_talker import Options, PlainTalker, Stack, Voice, choose, noise

SENTENCES = Path(__file__).parents[2] / "recipes/voice/eval/prompts/sentences.txt"
COUNT = 16
TYPES = (torch.bfloat16, torch.float8_e4m3fn)
OPTIONS = Options(temperature=0.9, predictor_temperature=0.9)
MAX_FRAMES = 150


class RoundedStack(Stack):
    """A talker whose cache holds numbers of another type."""

    dtype = torch.float32

    def kept(self, x: Tensor) -> Tensor:
        return x.to(self.dtype).float()


def first_code_logits(talker: PlainTalker, tokens: list[int], voice: Voice, frames: list[list[int]]) -> Tensor:
    """Logits of the first code of each frame, [frames, codes], when the frames before it are these."""
    rows, trailing = talker.prompt(tokens, voice)
    pad = talker.config["tts_pad_token_id"]
    inputs = [
        talker.frame(frame) + talker.text(trailing[step] if step < len(trailing) else pad)
        for step, frame in enumerate(frames[:-1])
    ]
    hidden = talker.talker.run(torch.stack([*rows, *inputs]), [])[len(rows) - 1 :]
    codes = talker.c["code_predictor_config"]["vocab_size"]
    return hidden @ talker.w["talker.codec_head.weight"][:codes].T


@torch.inference_mode()
def main() -> None:
    folder = Path(str(files("voxgate.voices"))) / "demo"
    tokenizer, talker = Tokenizer.from_file(str(folder / "tokenizer.json")), PlainTalker(folder)
    rounded = PlainTalker(folder)
    rounded.talker = RoundedStack(rounded.w, "talker.model.", rounded.c)
    speakers = sorted(json.loads((folder / "config.json").read_text())["talker_config"]["spk_id"])
    counts = {dtype: [0, 0, 0.0] for dtype in TYPES}
    total = 0
    lines = SENTENCES.read_text(encoding="utf-8").splitlines()
    for number, text in enumerate([line for line in lines if line and not line.startswith("#")][:COUNT]):
        voice, tokens = Voice(speakers[number % len(speakers)]), tokenizer.encode(text).ids
        spoken = talker.speak(tokens, number, OPTIONS, voice, MAX_FRAMES)
        total += len(spoken.frames)
        exact = first_code_logits(talker, tokens, voice, spoken.frames)
        for dtype, count in counts.items():
            RoundedStack.dtype = dtype
            other = first_code_logits(rounded, tokens, voice, spoken.frames)
            count[0] += int((exact.argmax(1) == other.argmax(1)).sum())
            for step, logits in enumerate(zip(exact, other, strict=True)):
                draws = [choose(each, OPTIONS.temperature, 50, 1.0, noise(number, step, 0, 16))[0] for each in logits]
                count[1] += draws[0] == draws[1]
            distributions = [torch.softmax(each / OPTIONS.temperature, 1) for each in (exact, other)]
            count[2] += float((distributions[0] - distributions[1]).abs().sum() / 2)
    print(f"{total} frames of {COUNT} sentences\n\n| cache | most probable code | drawn code | distance |")
    print("|---|---|---|---|")
    for dtype, (probable, drawn, distance) in counts.items():
        shares = f"{probable / total:.1%} | {drawn / total:.1%} | {distance / total:.2%}"
        print(f"| {str(dtype).removeprefix('torch.')} | {shares} |")


if __name__ == "__main__":
    main()
