"""What the tests stand on: real parts, started for them and taken away again."""
