"""Messages of the native protocol (docs/protocol.md).

The session works with these messages whatever the wire protocol is; other protocols translate from and to them.
"""
