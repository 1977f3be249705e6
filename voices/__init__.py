"""Voices that ship with the project."""
