"""Gateways as processes, clients, faulty networks and expected audio for the acceptance tests."""
