"""Reasoning that a language model writes before its answer: `<think>…</think>` is dropped."""

from __future__ import annotations

from collections.abc import Mapping

from .element import Handler, skip_content

ELEMENTS: Mapping[str, Handler] = {"think": skip_content, "thinking": skip_content}
"""Without an end tag, all that follows is reasoning."""
