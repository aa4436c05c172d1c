"""Runs: their rows, the queue, claims and attempts."""
