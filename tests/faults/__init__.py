"""Crashes, races and other faults: the tests start the real command, with its own processes and real databases."""
