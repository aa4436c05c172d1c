"""The steps, in order. Each says what it is for."""
