"""Measures how fast Hookmill accepts deliveries, against a bare app on the same server."""
