"""The voxgate command."""
