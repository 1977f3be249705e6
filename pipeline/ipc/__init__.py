"""Communication between processes: slot tables, reports, wake-ups, messages, watchdog, death and credentials."""
