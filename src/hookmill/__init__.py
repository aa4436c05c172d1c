"""Hookmill: webhooks in, runs out."""

__version__ = "0.1.0"
