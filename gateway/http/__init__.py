"""Plain HTTP on the port of the WebSockets: routes, speech as a response body, upgrades."""
