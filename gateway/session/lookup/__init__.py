"""Finds what requests name: stock voices of other services, and pronunciations."""
