"""The wire protocols: each translates between its payloads and the session's own messages."""
