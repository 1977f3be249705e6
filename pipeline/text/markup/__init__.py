"""Markup in a client's text: one incremental filter, whose rules are those of the dialects that are on."""
