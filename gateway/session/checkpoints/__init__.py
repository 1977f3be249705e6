"""Checkpoints of utterances: with them any replica that has the same model goes on where another one stopped."""
