"""Fakes with the real interfaces: a talker without a model, a loop with its own time, sockets of its own."""
