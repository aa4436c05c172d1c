"""Unusual inputs: each channel refuses them with an explanation, or stores and shows them."""
