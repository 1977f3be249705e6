"""`voxgate bench ws`: virtual users against any supported speech server."""
