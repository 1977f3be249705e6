"""The demo voice."""
