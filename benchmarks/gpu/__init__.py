"""`voxgate bench gpu`: talker, codec and gateway on NVIDIA GPUs with random weights."""
