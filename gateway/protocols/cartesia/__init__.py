"""Cartesia: contexts over WebSockets, audio or events in the answer of a `POST`, and the list of voices."""
