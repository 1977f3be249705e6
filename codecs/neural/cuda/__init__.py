"""The neural codec on NVIDIA GPUs."""
