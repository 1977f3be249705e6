"""Interrupted utterances that are kept for a while, because the interruption may turn out to be none."""
