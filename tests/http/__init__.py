"""The real server over real sockets: requests of all kinds that HTTP clients can send, and the service's answers."""
