"""What a caller can get wrong, as exceptions whose text says what happened, to which thing, and what to do.

HookmillError
├── Invalid            a value that was given cannot be used
│   └── InvalidFilter  a payload filter with problems, each at its place
├── NotFound           no such thing, or none that this caller may know of
├── Conflict           the thing's present state forbids it
│   └── LimitReached   one more would be too many
└── StoreUnavailable   the database did not answer, or is full: try again later
"""

from collections.abc import Sequence


class HookmillError(Exception):
    """The root of every error that a person can mend. `str(error)` is fit to be shown."""


class Invalid(HookmillError):
    """A value that was given cannot be used."""


class InvalidFilter(Invalid):
    """A payload filter that cannot be saved; `problems` are its faults, as lines fit to be shown."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("The payload filter cannot be used:\n" + "\n".join(f"  {problem}" for problem in problems))
        self.problems = tuple(problems)


class NotFound(HookmillError):
    """No such thing, or none that this caller may know of."""


class Conflict(HookmillError):
    """The thing's present state forbids what was asked."""


class LimitReached(Conflict):
    """One more would be too many."""


class StoreUnavailable(HookmillError):
    """The database did not answer, is full, or is locked. What was asked may or may not have happened."""
