"""`voxgate bench ws`: virtual users put any supported speech server under load."""
