"""Tests of Hookmill, from the rules up to the running service."""
