"""Wire protocols: the native one, and those of other speech services, over WebSockets and plain HTTP."""
