"""Deepgram: Aura (`v1.py`) and Flux (`v2.py`), turns of speech over WebSockets, and plain HTTP."""
