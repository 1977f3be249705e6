"""Recorders of the reference implementation, one file per subject; they run in its environment (scripts/test-reference)."""
