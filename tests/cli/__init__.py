"""Tests of the command line. They run the commands on a real store."""
