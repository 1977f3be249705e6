"""The neural codec of Qwen3-TTS-12Hz: sixteen codes a frame to 24 kHz audio."""
