"""Master keys: sealing secrets, the key file, the keys that the database uses, and rotation."""
