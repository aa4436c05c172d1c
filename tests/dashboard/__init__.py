"""Tests of the dashboard: in a real browser with the real server, and in the test's own process."""
