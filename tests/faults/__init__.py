"""Crashes, races and faults, against the real service: its own command, its own processes, real stores."""
