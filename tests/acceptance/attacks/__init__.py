"""Attacks that a client can mount, one test each, against a gateway process behind real sockets."""
