"""How often race-prone tests repeat what they do: a few times for every change, and more often with `make proof`."""

_ARE_FULL = False


def count(full: int, *, usually: int) -> int:
    """The number of repetitions in this run of the tests: `full` with `make proof`, otherwise `usually`.

    Constants of test modules may call it: the choice is made before these modules are imported.
    """
    return full if _ARE_FULL else usually


def are_full() -> bool:
    """Whether this run repeats everything at the full count."""
    return _ARE_FULL


def make_full() -> None:
    """Choose the full counts. Call it before test modules are imported."""
    global _ARE_FULL
    _ARE_FULL = True
