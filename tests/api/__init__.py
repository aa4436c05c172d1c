"""The HTTP API, in this process unless the subject needs a real one."""
