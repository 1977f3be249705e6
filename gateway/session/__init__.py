"""The sans-I/O core of a connection: events and the time go in, effects come out.

`ServerSession` holds the utterances of one socket. Each `ServerUtterance` follows the table in `lifecycle`, collects
encoded audio in its `Outbox`, and sends it when its `Pacer` says so. `UtteranceTimers` do what falls due,
`Termination` ends utterances, `AdmissionQueue` grants talker slots. What is to be done is queued as `effects`, which
`transport.connection` performs.
"""
