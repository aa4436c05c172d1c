"""The real server over real sockets: what HTTP allows a sender to send, and what the service makes of it."""
