"""Voices made from a recording: what listens to it, and where they are kept."""
