"""ElevenLabs: contexts over WebSockets, and plain HTTP with character times."""
