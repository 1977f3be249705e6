"""Speaks the answer of a language model while it is generated, from any server with OpenAI's chat API.

    pip install httpx
    python examples/llm_to_speech.py "Why is the sky blue?" --llm http://127.0.0.1:11434/v1 --model llama3.2 | \
        ffplay -autoexit -nodisp -loglevel error -f s16le -ar 24000 -ch_layout mono -

Without --llm it speaks a fixed answer at the pace of a model. Audio goes to standard output: 16 bit, 24 kHz, mono.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator

import httpx
from voxgate.client import say

ANSWER = "Sunlight is scattered by the air, and blue light more than red. That is why the sky looks blue."


async def tokens(question: str, llm: str | None, model: str, pause_s: float) -> AsyncIterator[str]:
    """Yields the tokens of the answer as the model generates them."""
    if llm is None:
        for word in ANSWER.split(" "):
            yield word + " "
            await asyncio.sleep(pause_s)
        return
    headers = {"Authorization": f"Bearer {os.environ.get('LLM_API_KEY', 'none')}"}
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": question}]}
    async with (
        httpx.AsyncClient(timeout=60) as http,
        http.stream("POST", f"{llm}/chat/completions", json=body, headers=headers) as response,
    ):
        response.raise_for_status()
        async for line in response.aiter_lines():
            if line.startswith("data: ") and line != "data: [DONE]":
                choices = json.loads(line.removeprefix("data: "))["choices"]
                if choices and (token := choices[0]["delta"].get("content")):
                    yield token


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question")
    parser.add_argument("--llm", help="base URL of the model's server, such as http://127.0.0.1:11434/v1")
    parser.add_argument("--model", default="default")
    parser.add_argument("--gateway", default="ws://127.0.0.1:8000")
    parser.add_argument("--pause-s", type=float, default=0.06, help="pause between the words of the fixed answer")
    arguments = parser.parse_args()
    async for audio in say(
        tokens(arguments.question, arguments.llm, arguments.model, arguments.pause_s), url=arguments.gateway
    ):
        sys.stdout.buffer.write(audio.payload)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    asyncio.run(main())
