"""Metrics, traces, logs and the events they are made of."""
