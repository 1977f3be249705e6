"""Access control: keys, short-lived tokens, origins, and limits of use."""
