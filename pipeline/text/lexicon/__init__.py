"""Pronunciations: terms of the text that are spoken in another form."""
