"""Recorders of the reference implementation, one file per subject, run in its environment."""
