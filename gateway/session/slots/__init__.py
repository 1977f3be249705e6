"""When an utterance asks for a talker slot, and when it gives its slot up."""
