"""How often tests repeat what shows itself only now and then: seldom for every change, at the full count for a release.

A full count takes the minutes that a suite for every change hasn't got: `make proof`.
"""

_ARE_FULL = False


def count(full: int, *, usually: int) -> int:
    """The number of times, for this run of the tests. For modules' constants."""
    return full if _ARE_FULL else usually


def are_full() -> bool:
    """Whether this run repeats everything at the full count."""
    return _ARE_FULL


def make_full() -> None:
    """To be called before the modules of tests are imported."""
    global _ARE_FULL
    _ARE_FULL = True
