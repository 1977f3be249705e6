"""Python client of the native dialect."""
