"""The checkpoint folder: files, configuration, weights, the optional `voice.toml`, and their checks."""
