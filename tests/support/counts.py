"""How often tests repeat what shows itself only now and then: a few times for every change, and with `make proof` as
often as the promise was proven with."""

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
