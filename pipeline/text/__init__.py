"""Text fragments to tokens that no later text can change (docs/text.md)."""
