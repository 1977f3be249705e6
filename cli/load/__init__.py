"""Load on a speech server, from outside, as listeners make it (`voxgate bench ws`)."""
