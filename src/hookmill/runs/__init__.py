"""Runs: claims them from the backlog, performs them, and requeues them when a worker dies."""
