"""Connections of this service to other hosts, with deadlines, and only to addresses that the caller permits."""
