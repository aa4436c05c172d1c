"""Real parts that tests use: servers, databases, hosts and processes."""
