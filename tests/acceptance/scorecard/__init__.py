"""One file a row: what is done, what is counted, what is wanted."""
