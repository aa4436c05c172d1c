"""The rules. Pure: no clock, no randomness, no I/O, no framework.

The only files that are read here are the catalogue of signature schemes and the host's time zones.
"""
