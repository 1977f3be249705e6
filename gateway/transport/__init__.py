"""The network side of sessions: handshake, connections, buffer limits, drain, HAProxy's agent check.

Only these files, and those of `http`, wait for the network.
"""
