"""From text fragments to tokens that no later text can change."""
