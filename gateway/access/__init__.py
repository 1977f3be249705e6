"""Who may come in, and how much each may use: keys, short-lived tokens, origins, limits."""
