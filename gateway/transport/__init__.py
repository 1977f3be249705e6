"""The network side of a connection: WebSocket handshake, reading, writing, buffer limits."""
