"""The dashboard, in a real browser and through the real server."""
