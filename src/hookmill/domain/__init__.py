"""The rules. Pure: no clock, no randomness, no I/O, no framework."""
