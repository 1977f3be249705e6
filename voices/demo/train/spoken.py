"""The spoken form of training text: what the gateway itself makes of written text for this voice."""

from __future__ import annotations

from voxgate.pipeline.text.sanitize import Sanitizer
from voxgate.pipeline.text.spoken import SpokenForm


def spoken(written: str) -> str:
    """One text as the tokenizer gets it when a client sends it whole; empty when there is nothing to say."""
    sanitizer, form = Sanitizer(()), SpokenForm()
    said = form.push(sanitizer.push(written)).text + form.push(sanitizer.flush()).text + form.flush().text
    return said.rstrip(" ")
