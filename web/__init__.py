"""The browser page, served by the gateway."""
