"""The `voxgate` command."""
