"""The synchronous core: one client connection as state, without the network (time is an argument, effects are the result)."""
