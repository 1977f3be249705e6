"""Fakes with the real interfaces: engines and codecs without a model, virtual time, in-process gateways and sockets."""
