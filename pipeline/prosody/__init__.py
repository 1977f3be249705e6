"""Rate, volume and pauses: makes the client's audio of the talker's speech, and converts times between the two."""
