"""The gateway in one process and in virtual time, under random clients and faults."""
