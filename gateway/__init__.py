"""The gateway: serves speech to clients over WebSockets and HTTP, in front of the speech pipeline.

Imports go downward only: server, workers → listener → http → transport → protocols → session → access, observability →
engine, settings, messages, errors.
"""
