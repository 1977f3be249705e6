"""Measures the demo voice against the voices it learnt from; run by `scripts/eval-voice`, no part of the product."""
