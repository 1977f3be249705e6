"""Voices cloned from a recording, given by a speaker vector, or blended: making, storing and offering them."""
