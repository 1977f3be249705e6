"""A gateway of several processes: workers that have the sockets, and the speech process that has the voice model."""
