"""The command line, through the command itself, on a real store."""
