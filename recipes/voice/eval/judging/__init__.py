"""Judges of one utterance: its words, the opinion of listeners, its speaker, its silences and its level."""
