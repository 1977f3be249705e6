"""A gateway of several processes: workers with the sockets, and the speech process with the voice model."""
