"""Word times: forced alignment of text and speech while both stream."""
