"""Acceptance tests: the promises of docs/reliability.md, each measured on a running gateway or in simulation."""
