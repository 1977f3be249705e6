"""Measurements for developers, run from a checkout; not part of the wheel."""
