"""Plain HTTP beside the sockets: who serves a connection, what is answered, and in which form."""
