"""`python -m hookmill` is the command `hookmill`."""

from hookmill.cli import main

if __name__ == "__main__":
    main()
