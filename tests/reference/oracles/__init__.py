"""What the reference says, a file per subject; these run in its own environment (see scripts/test-reference)."""
