"""The gateway: sockets, sessions, flow control and admission in front of the speech pipeline."""
