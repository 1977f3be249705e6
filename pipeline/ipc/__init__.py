"""Communication between the processes: shared slot tables, frame reports, wake-ups, watchdog."""
