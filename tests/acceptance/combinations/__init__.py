"""Looks for combinations of misfortunes: random clients, networks, engines and operators against the real gateway.

A run is a `program`: settings, and steps drawn from the table in `actions`. `machine` executes it on a gateway with
real sockets (`world`) in virtual time (`testbed.paired_loop`). `fairness` judges meanwhile whom slots and refusals go
to, and `invariants` judge what is left. A failing seed replays exactly.
"""
