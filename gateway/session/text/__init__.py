"""The text of one utterance: what was accepted, in whose units its offsets count, and when more of it is missing."""
