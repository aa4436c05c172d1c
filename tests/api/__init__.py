"""Tests of the HTTP API. It runs in the test's process, unless a test needs a running service."""
